"""horovod.torch under the real launcher."""

from pathlib import Path

import pytest
from util_launch import run_checks

pytest.importorskip("torch")

CHECKS = Path(__file__).with_name("checks_all.py")


@pytest.mark.parametrize("np", [2, 3])
def test_collectives(np: int) -> None:
    run_checks(np, CHECKS, timeout=120, HOROVOD_DYNAMIC_PROCESS_SETS="1")
