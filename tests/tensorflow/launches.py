"""TensorFlow takes seconds to start, so that one launch runs nearly everything."""

import os

from check_launch import Launch

ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    "CHECK_ADAPTER": "tensorflow",
    # Ranks that wait for each other end the launch long before its time is up.
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "30",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "120",
}
SUBJECTS = "arguments collectives documents elastic errors gradients layers steps tf1 training xla"
EVERYTHING = [
    "../conformance/checks_conformance.py",
    "../conformance/checks_calls.py",
    *(f"checks_{subject}.py" for subject in SUBJECTS.split()),
]
ONE_THREAD = [
    "checks_one_thread.py",
    "checks_documents.py",
    "checks_layers.py",
    "checks_tf1.py::check_graph_collectives",
    "checks_tf1.py::check_session_equals_the_whole",
    "checks_training.py::check_many_in_flight",
    "checks_training.py::check_partial_tape",
]


def tensorflow(name: str, np: int, checks: list[str], timeout: float = 280, **more: str) -> Launch:
    return Launch(
        f"tensorflow-{name}",
        np,
        checks,
        {**ENVIRONMENT, **more},
        timeout,
        before="one_thread_setup.py" if name == "one-thread" else "tensorflow_setup.py",
        needs=["tensorflow", "tf_keras"] if name == "one-thread" else ["tensorflow"],
        slow=np > 2,
    )


LAUNCHES = [
    tensorflow("shm-2", 2, [*EVERYTHING, "checks_after_join.py"], 380, HOROVOD_TRANSPORT="shm"),
    tensorflow("tcp-3", 3, EVERYTHING, 380, HOROVOD_TRANSPORT="tcp"),
    tensorflow("one-thread", 2, ONE_THREAD, TF_USE_LEGACY_KERAS="1"),
    # 200 gradients; CHECK_STEPS=1000 for the long form.
    tensorflow(
        "4", 4, ["checks_training.py::check_many_in_flight"], CHECK_STEPS=os.environ.get("CHECK_STEPS", "100")
    ),
]
