"""Ranks are killed at any moment: what was written stays valid, and the file of the job is made."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runner_util import Launcher, wait_until
from test_timeline_merge import check_nesting

from horovod.timeline.__main__ import main
from horovod.timeline.files import load
from horovod.timeline.merge import merged
from horovod.timeline.records import read_parts

# Rows of small operations, large ones and marks, without end. The file `pid.<rank>` says that it begins.
PROGRAM = """
import os, pathlib
import numpy as np
import horovod.numpy as hvd
hvd.init()
pathlib.Path(f"pid.{hvd.rank()}.new").write_text(str(os.getpid()))
os.rename(f"pid.{hvd.rank()}.new", f"pid.{hvd.rank()}")
while True:
    for _ in range(300):
        hvd.allreduce(np.ones(1, np.float32), name="small")
    hvd.allreduce(np.ones(100_000, np.float32), name="large")
    hvd.mark_step()
"""


def appeared(path: Path) -> int:
    wait_until(path.exists, 60, f"{path} did not appear")
    return int(path.read_text())


def kill_rank_0(directory: Path, moment: float) -> None:
    """Without a launcher: the file of the contract, and the part beside it."""
    environment = {**os.environ, "HOROVOD_TIMELINE": "t.json", "HOROVOD_TIMELINE_RANKS": "all"}
    for name in ("pid.0", "t.json", "t.json.rank0.part"):
        (directory / name).unlink(missing_ok=True)
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=directory, env=environment) as process:
        appeared(directory / "pid.0")
        time.sleep(moment)
        process.kill()
    json.loads((directory / "t.json").read_text())
    (part,) = read_parts((directory / "t.json.rank0.part").read_bytes(), "part")
    if moment > 0.2:
        assert len(part.records) > 10


def kill_a_rank(directory: Path, rank: int, moment: float) -> None:
    """In a job: the file of all ranks, and what explains it."""
    for path in directory.glob("pid.*"):
        path.unlink()
    flags = ["-np", "2", "--timeline", "t.json", "--no-event-log"]
    job = Launcher(*flags, sys.executable, "-c", PROGRAM, cwd=directory)
    pid = appeared(directory / f"pid.{rank}")
    time.sleep(moment)
    os.kill(pid, signal.SIGKILL)
    ended = job.finish_all(60)
    assert ended.returncode == 137
    assert "timeline of 2 ranks: " in ended.stderr
    document = json.loads((directory / "t.json").read_text())
    check_nesting(document["traceEvents"])
    assert not list(directory.glob("*.part"))
    if moment > 0.5:
        (world,) = merged(load([directory / "t.json"]))
        assert world.traces[rank].torn
        assert main(["explain", str(directory / "t.json")]) == 0


def test_rank_0_is_killed(tmp_path: Path) -> None:
    chance = random.Random(1)
    for _ in range(4):
        kill_rank_0(tmp_path, chance.uniform(0, 0.4))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_of_a_job_is_killed(tmp_path: Path, rank: int) -> None:
    kill_a_rank(tmp_path, rank, random.Random(rank).uniform(0.5, 1.0))


@pytest.mark.slow
def test_ranks_are_killed_again_and_again(tmp_path: Path) -> None:
    """At moments that differ from run to run; a failure tells which."""
    seed = int(time.time())
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(60):
        kill_rank_0(tmp_path, chance.choice([chance.uniform(0, 0.05), chance.uniform(0, 1)]))
        kill_a_rank(tmp_path, chance.randrange(2), chance.choice([0, chance.uniform(0, 1)]))
