"""horovod.mxnet under the real launcher. MXNet needs an environment of its own: `make test-mxnet`."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from util_launch import launch

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "mxnet" / "mxnet_mnist.py"
_found = importlib.util.find_spec("mxnet")
WITH_MXNET = pytest.mark.skipif(
    _found is None or _found.origin is None, reason="MXNet needs an environment of its own: make test-mxnet"
)


@WITH_MXNET
def test_example(tmp_path: Path) -> None:
    saved = tmp_path / "digits.params"
    options = ("--epochs=2", "--limit=1000", "--batch-size=16", f"--save={saved}")
    outcome = launch(2, EXAMPLE, *options, timeout=240)
    assert outcome.code == 0, outcome.output
    found = re.findall(r"test accuracy ([\d.]+)%; ", outcome.output)
    assert len(found) == 2 and float(found[1]) > 70, outcome.output
    assert saved.stat().st_size > 1000


@WITH_MXNET
def test_names() -> None:
    """Those of the table in docs/names.md."""
    import horovod.mxnet
    from horovod.common import names

    listed = [name for entry in names.entries() if entry.module == "horovod.mxnet" for name in entry.names]
    assert len(listed) > 40 and [name for name in listed if not hasattr(horovod.mxnet, name)] == []


FAKE = """
import numpy
numpy.bool_that_was_removed
"""


@pytest.mark.parametrize(("content", "text"), [(None, "needs MXNet"), (FAKE, "it needs numpy<1.24")])
def test_the_import_error_says_what_to_do(content: str | None, text: str, tmp_path: Path) -> None:
    """Also where MXNet is installed beside a numpy with which it can't be imported."""
    if content is None:
        code = "import sys; sys.modules['mxnet'] = None; import horovod.mxnet"
    else:
        (tmp_path / "mxnet.py").write_text(content)
        code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import horovod.mxnet"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE.parents[1], capture_output=True, text=True, timeout=60
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError: "), done.stderr
    assert text in last and "pip install mxnet==1.9.1 'numpy<1.24'" in last
