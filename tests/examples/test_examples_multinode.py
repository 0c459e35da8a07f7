"""TensorFlow_Multinode_Training_with_Horovod.py by its three command lines (the third: tests/cluster)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from examples_util import MULTINODE, figures, horovodrun, run
from util_packages import needs

needs("tensorflow", "mlxtend")
CLOSING = r"============================\n.*Number of tasks:  {}\n.*Total time is: \d+(\.\d+)?\n"


def test_two_processes_then_alone_from_the_checkpoint(tmp_path: Path) -> None:
    # As its readers have it: in the current directory, and started without "python".
    flags = ["--steps", "40", "--log-every", "10", "--save-every", "10"]
    code, output = horovodrun("-np", "2", MULTINODE, *flags, cwd=tmp_path)
    assert code == 0, output
    assert "Saving checkpoints for 0 into ./checkpoints/model.ckpt" in output
    for rank in (0, 1):  # both ranks log, only one writes
        losses = figures(rf"\[{rank}\]<stderr>:INFO:tensorflow:loss = ([\d.]+), step = \d+", output)
        assert len(losses) == 2 and losses[1] < losses[0], output
        assert re.search(rf"\[{rank}\]<stderr>:INFO:tensorflow:loss = [\d.]+, step = 1\n", output)
        assert re.search(rf"\[{rank}\].*loss = [\d.]+, step = 11 \([\d.]+ sec\)", output)
    assert "[1]<stderr>:INFO:tensorflow:Saving" not in output
    assert "INFO:tensorflow:global_step/sec: " in output
    assert re.search(CLOSING.format(2), output), output
    assert len(re.findall("weights [0-9a-f]{16} on all ranks", output)) == 1
    assert (tmp_path / "checkpoints" / "model.ckpt-20.index").exists()

    code, output = run(sys.executable, MULTINODE, "--steps", "30", "--log-every", "5", cwd=tmp_path)
    assert code == 0, output
    assert "Restoring parameters from ./checkpoints/model.ckpt-20" in output
    losses = figures(r"loss = ([\d.]+), step = (?:21|26)\b", output)
    assert len(losses) == 2 and losses[0] < 1.5, output  # it does not start anew
    assert re.search(CLOSING.format(1), output), output
