"""Features, mistakes and life cycles under the real launcher."""

from pathlib import Path

import pytest
from util_launch import run_checks

HERE = Path(__file__).parent
TRANSPORTS = pytest.mark.parametrize(("np", "transport"), [(2, "shm"), (4, "shm"), (3, "tcp")])


@TRANSPORTS
def test_features(np: int, transport: str) -> None:
    run_checks(np, HERE / "checks_features.py", HOROVOD_TRANSPORT=transport, HOROVOD_DYNAMIC_PROCESS_SETS="1")


@TRANSPORTS
def test_mistakes(np: int, transport: str) -> None:
    run_checks(np, HERE / "checks_errors.py", HOROVOD_TRANSPORT=transport)


@pytest.mark.parametrize(("np", "transport", "cycles"), [(2, "shm", 300), (3, "tcp", 50)])
def test_life_cycles(np: int, transport: str, cycles: int) -> None:
    checks = HERE / "checks_lifecycle.py"
    run_checks(np, checks, timeout=240, HOROVOD_TRANSPORT=transport, CHECK_CYCLES=str(cycles))


@pytest.mark.parametrize(("np", "transport"), [(2, "shm"), (3, "shm"), (3, "tcp")])
def test_unnamed_operations_after_a_join(np: int, transport: str) -> None:
    checks = HERE / "checks_after_join.py"
    run_checks(np, checks, timeout=120, HOROVOD_TRANSPORT=transport, HOROVOD_DYNAMIC_PROCESS_SETS="1")
