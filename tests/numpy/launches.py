"""Features, mistakes and life cycles."""

from check_launch import Launch

DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
FEATURES, AFTER_JOIN = ["checks_features.py", "../conformance/checks_calls.py"], ["checks_after_join.py"]


def features(np: int, transport: str, checks: list[str]) -> Launch:
    return Launch(f"features-{transport}-{np}", np, checks, {**DYNAMIC, "HOROVOD_TRANSPORT": transport})


def mistakes(np: int, transport: str) -> Launch:
    return Launch(f"mistakes-{transport}-{np}", np, ["checks_errors.py"], {"HOROVOD_TRANSPORT": transport})


def life_cycles(np: int, transport: str, cycles: int) -> Launch:
    environment = {"HOROVOD_TRANSPORT": transport, "CHECK_CYCLES": str(cycles)}
    return Launch(f"lifecycle-{transport}-{np}", np, ["checks_lifecycle.py"], environment, timeout=240)


def shared(np: int, transport: str) -> Launch:
    return Launch(f"shared-{transport}-{np}", np, ["checks_shared.py"], {"HOROVOD_TRANSPORT": transport})


LAUNCHES = [
    features(2, "shm", FEATURES + AFTER_JOIN),
    features(3, "shm", AFTER_JOIN),
    features(4, "shm", FEATURES),
    features(3, "tcp", FEATURES + AFTER_JOIN),
    mistakes(2, "shm"),
    mistakes(4, "shm"),
    mistakes(3, "tcp"),
    life_cycles(2, "shm", 300),
    life_cycles(3, "tcp", 50),
    shared(2, "shm"),
    shared(3, "shm"),
    shared(2, "tcp"),
]
