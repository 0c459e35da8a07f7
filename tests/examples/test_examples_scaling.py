"""scaling_plot.py runs an example with several numbers of processes and draws the speeds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from examples_util import figures, run
from util_packages import needs
from util_paths import EXAMPLES

needs("tensorflow", "mlxtend")


@pytest.mark.slow
def test_scaling_plot(tmp_path: Path) -> None:
    words = ["--processes=1,2", "--epochs=1", "--limit=256", "--output=drawn"]
    code, output = run(sys.executable, EXAMPLES / "scaling_plot.py", *words, cwd=tmp_path)
    assert code == 0, output
    speeds = figures(r"[12] process\(es\): ([\d,]+) images/s", output)
    assert len(speeds) == 2 and min(speeds) > 0, output
    assert (tmp_path / "drawn" / "scaling.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "drawn" / "report.html").read_text()
    assert "ideal" in page and f"{speeds[1]:,.0f}" in page
    assert not (tmp_path / "checkpoints").exists()
