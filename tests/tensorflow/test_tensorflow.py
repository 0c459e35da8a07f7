"""horovod.tensorflow under the real launcher."""

from pathlib import Path

import pytest
from util_launch import run_checks

pytest.importorskip("tensorflow")

HERE = Path(__file__).parent
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


@pytest.mark.parametrize(("np", "transport"), [(2, "shm"), (3, "tcp")])
def test_everything(np: int, transport: str) -> None:
    run_checks(
        np,
        HERE / "checks.py",
        timeout=280,
        HOROVOD_DYNAMIC_PROCESS_SETS="1",
        HOROVOD_TRANSPORT=transport,
        **QUIET,
    )
