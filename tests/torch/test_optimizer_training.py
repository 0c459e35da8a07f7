"""Training equality under the real launcher."""

from pathlib import Path

import pytest
from util_launch import run_checks

HERE = Path(__file__).parent


@pytest.mark.parametrize(("np", "transport"), [(2, "shm"), (3, "tcp")])
def test_training_equals_one_process(np: int, transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))  # for the helpers of the checks
    checks = HERE / "checks_optimizer_training.py"
    run_checks(np, checks, timeout=240, HOROVOD_TRANSPORT=transport, HOROVOD_DYNAMIC_PROCESS_SETS="1")
