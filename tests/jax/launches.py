"""horovod.jax: the suite of all adapters on values, and what JAX does in its own way."""

from check_launch import Launch

CONFORMANCE = ["../conformance/checks_conformance.py", "../conformance/checks_calls.py"]
# Where the number of ranks matters.
MORE_RANKS = [
    f"checks_transforms.py::check_{what}"
    for what in (
        "gradients",
        "gradients_with_uneven_rows",
        "opposite_orders_of_results",
        "values_after_programs",
    )
]


def jax(np: int, checks: list[str], x64: bool = True, **environment: str) -> Launch:
    name = f"jax-{np}" if x64 else f"jax-x32-{np}"
    variables = {
        "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
        "HOROVOD_TIMELINE": "DYNAMIC",
        "CHECK_ADAPTER": "jax",
        "JAX_ENABLE_X64": str(int(x64)),
        **environment,
    }
    return Launch(name, np, checks, variables, timeout=240, needs=["jax", "optax"])


LAUNCHES = [
    jax(1, ["checks_ops.py", "checks_steps.py::check_grad", "checks_steps.py::check_optimizer"]),
    jax(2, [*CONFORMANCE, "checks_ops.py", "checks_transforms.py", "checks_errors.py"]),
    jax(
        3,
        ["checks_ops.py", *MORE_RANKS],
        HOROVOD_TRANSPORT="tcp",
    ),
    jax(2, ["checks_training.py", "checks_steps.py"], x64=False),
]
