"""What the other ranks see when one ends early."""

from pathlib import Path

import pytest
from util_launch import launch

SCRIPT = """
import os, signal, sys
import numpy as np
import horovod.numpy as hvd

hvd.init()
how = sys.argv[1]
if hvd.rank() == 1:
    hvd.allreduce(np.ones(3))
    if how == "exception":
        raise ZeroDivisionError("on rank 1 only")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(0)
try:
    hvd.allreduce(np.ones(3))  # may fail already: rank 1 is perhaps gone before this rank has its result
    hvd.allreduce(np.ones(3), name="waiting")
except hvd.HorovodInternalError as error:
    print(f"rank {hvd.rank()} saw: {error}")
    sys.exit(3)
print("no error")
"""


@pytest.mark.parametrize("how", ["exception", "kill", "exit"])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_the_others_raise(tmp_path: Path, how: str, transport: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    outcome = launch(3, script, how, timeout=120, HOROVOD_TRANSPORT=transport)
    assert outcome.code != 0
    assert "no error" not in outcome.output
    for rank in (0, 2):
        seen = [line for line in outcome.output.splitlines() if f"rank {rank} saw: " in line]
        assert seen, outcome.output
        assert "rank 1" in seen[0].lower(), outcome.output
    if how == "exception":
        assert "ZeroDivisionError: on rank 1 only" in outcome.output
