"""Which of the two packages of Lightning horovod.lightning is for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from util_packages import needs

HERE = Path(__file__).parent


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=HERE.parents[1], capture_output=True, text=True, timeout=120
    )


def test_the_class_is_that_of_the_imported_package() -> None:
    needs("lightning_utilities")  # comes with both, which are not to be imported here
    code = """if True:
        import pytorch_lightning
        import horovod.lightning as hvl
        from horovod.lightning import HorovodStrategy
        assert issubclass(HorovodStrategy, pytorch_lightning.strategies.ParallelStrategy)
        assert HorovodStrategy is hvl.HorovodStrategy and HorovodStrategy.__module__ == "horovod.lightning"
        import lightning.pytorch
        other = hvl.strategy_class("lightning.pytorch")
        assert issubclass(other, lightning.pytorch.strategies.ParallelStrategy)
        assert other is not HorovodStrategy
        try:
            hvl.HorovodStrategy
        except ImportError as error:
            assert "strategy_class('lightning.pytorch')" in str(error)
            print("as expected")
    """
    done = run(code)
    assert done.stdout == "as expected\n", done.stderr


def test_without_lightning_the_error_says_what_to_do() -> None:
    needs("torch")
    code = """if True:
        import sys
        sys.modules["lightning"] = sys.modules["pytorch_lightning"] = None
        from horovod.lightning import HorovodStrategy
    """
    done = run(code)
    assert done.returncode == 1 and "pip install lightning" in done.stderr, done.stderr
