"""torch takes seconds to start, so that few launches run everything."""

from check_launch import Launch

COLLECTIVES = [
    "../conformance/checks_conformance.py",
    "../conformance/checks_calls.py",
    "checks_ops.py",
    "checks_autograd.py",
    "checks_staging.py",
    "checks_functions.py",
    "checks_sync_batch_norm.py",
]
ELASTIC = "checks_elastic.py"
OPTIMIZER = [f"checks_optimizer_{subject}.py" for subject in ("rules", "parameters", "training")] + [
    "checks_steps.py"
]
ADASUM = "checks_optimizer_adasum.py"
# The number of ranks makes no difference to the compiler, and it takes long.
COMPILE = "checks_compile.py"
LAST = ["checks_optimizer_interrupted.py", "checks_errors.py"]


def torch(np: int, checks: list[str], **environment: str) -> Launch:
    name = "-".join(["torch", *environment.values(), str(np)])
    variables = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1", "CHECK_ADAPTER": "torch", **environment}
    return Launch(name, np, checks, variables, timeout=280, needs=["torch"])


LAUNCHES = [
    torch(
        1,
        [
            *(f"checks_ops.py::check_{each}" for each in ("allreduce", "allgather", "groups", "sparse")),
            "checks_functions.py::check_optimizer_state",
        ],
    ),
    torch(
        2,
        [*COLLECTIVES, COMPILE, *OPTIMIZER, ADASUM, ELASTIC, *LAST, "checks_after_join.py"],
        HOROVOD_TRANSPORT="shm",
    ),
    torch(3, [*COLLECTIVES, *OPTIMIZER, ELASTIC, *LAST], HOROVOD_TRANSPORT="tcp"),
    torch(4, [ADASUM]),
]
