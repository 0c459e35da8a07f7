"""Steps of compiled functions are marked, once each, also if the program marks them itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_timeline_jobs import explained, run

TRAIN = Path(__file__).with_name("train_compiled.py")


@pytest.mark.parametrize("how", ["", "by-hand"])
@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
def test_steps(framework: str, how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, framework, how, program=TRAIN)
    data = explained(tmp_path, capsys)
    assert data["found_by"] == "step marks"
    assert data["steps"] == 24 - 1 - 10
