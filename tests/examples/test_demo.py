"""make demo, and the numpy example: it learns, all ranks agree, several processes get what one gets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from util_launch import launch
from util_packages import needs
from util_paths import ROOT

DEMO = ROOT / "examples" / "numpy" / "digits.py"


def final_accuracy(output: str) -> float:
    found = re.search(r"Test accuracy\s+([\d.]+)%", output)
    assert found, output
    return float(found[1])


def test_make_demo_mentions_what_tells_where_the_time_goes() -> None:
    shown = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "horovodrun -np 2 --timeline t.json --dashboard " in shown.stdout, shown.stderr


def test_make_demo(tmp_path: Path) -> None:
    """The command of the Makefile, with its files elsewhere."""
    needs("tensorflow", "mlxtend")
    shown = subprocess.run(
        ["make", "-n", "demo", f"DEMO={tmp_path}"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    line = " ".join(shown.stdout.replace("\\\n", " ").split())
    found = re.search(r"horovodrun -np 2 (\S+\.py)((?: \S+)+?) 2> ", line)
    assert found, shown.stdout + shown.stderr
    outcome = launch(2, ROOT / found[1], *found[2].split(), timeout=200)
    assert outcome.code == 0, outcome.output
    assert final_accuracy(outcome.output) >= 95
    for line in (
        "Time ",
        "Speed ",
        "the same bits on both ranks",
        f"Report         {tmp_path}/report/report.html",
    ):
        assert line in outcome.output, outcome.output
    assert (tmp_path / "report" / "report.html").exists()
    assert (tmp_path / "checkpoints" / "checkpoint").exists()


def test_missing_scikit_learn_is_explained(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked.py"
    blocked.write_text(
        "import runpy, sys\nsys.modules['sklearn'] = None\nsys.modules['sklearn.datasets'] = None\n"
        f"sys.argv = [{str(DEMO)!r}]\nrunpy.run_path({str(DEMO)!r}, run_name='__main__')\n"
    )
    outcome = launch(1, blocked, timeout=60)
    assert outcome.code == 1
    assert "pip install scikit-learn" in outcome.output and "Traceback" not in outcome.output


def test_help_and_bad_values() -> None:
    shown = subprocess.run([sys.executable, DEMO, "--help"], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0
    assert all(flag in shown.stdout for flag in ("--epochs", "--batch-size", "--lr", "--seed"))
    refused = subprocess.run(
        [sys.executable, DEMO, "--epochs", "0"], capture_output=True, text=True, timeout=60
    )
    assert refused.returncode == 2 and "above 0" in refused.stderr


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_learns_and_agrees(ranks: int) -> None:
    needs("sklearn")
    outcome = launch(ranks, DEMO, "--epochs", "8", timeout=120)
    assert outcome.code == 0, outcome.output
    assert final_accuracy(outcome.output) > 90
    agreed = {1: "the only rank", 2: "both ranks", 3: "all 3 ranks"}[ranks]
    assert f"the same bits on {agreed}" in outcome.output
    assert "[1]<stdout>" not in outcome.output  # only rank 0 speaks


def test_several_processes_equal_one(tmp_path: Path) -> None:
    needs("sklearn")
    saved = []
    for ranks in (1, 2, 3):  # 64 does not divide by 3: shares of different sizes
        file = tmp_path / f"weights{ranks}.npz"
        outcome = launch(ranks, DEMO, "--epochs", "3", "--save", file, timeout=120)
        assert outcome.code == 0, outcome.output
        saved.append(dict(np.load(file)))
    for other in saved[1:]:
        for name, expected in saved[0].items():
            np.testing.assert_allclose(other[name], expected, rtol=1e-9, atol=1e-12)
