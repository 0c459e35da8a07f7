"""tf2_hvd_mnist.py under plain mpirun, its output in a file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from examples_util import run
from util_packages import needs
from util_paths import EXAMPLES

needs("tensorflow", "mlxtend")


@pytest.mark.skipif(
    importlib.util.find_spec("horovod._bootstrap.identity.launchers") is None,
    reason="this version starts only with horovodrun",
)
def test_mpirun(mpirun: str, tmp_path: Path) -> None:
    program = EXAMPLES / "tensorflow2" / "tf2_hvd_mnist.py"
    words = ["-np", "2", "--oversubscribe", "--verbose", sys.executable, program]
    code, output = run(
        mpirun,
        *words,
        "--batch_size=256",
        "--epochs=1",
        cwd=tmp_path,
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )
    assert code == 0, output
    assert "2 processes" in output and "the same bits on both ranks" in output, output
    assert "\x1b" not in output  # a log file stays readable
    assert (tmp_path / "checkpoints" / "tf2_hvd_mnist" / "ckpt-1.index").exists()
