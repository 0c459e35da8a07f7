"""Ctrl-C, kill -9 of the launcher in the middle of a job, and a rank that does not react to anything."""

from __future__ import annotations

import signal
import time

import pytest
from fault_job import GRACE, StartJob
from runner_util import wait_until


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_murdered_launcher(start: StartJob, transport: str) -> None:
    job = start(3, "program_endless.py", HOROVOD_TRANSPORT=transport)
    for rank in range(3):
        job.notes.wait(f"running-{rank}")
    job.launcher.process.kill()
    wait_until(lambda: not job.launcher.family(), 2, "processes are left 2 s after kill -9 of the launcher")
    job.finish(5)


def test_ctrl_c_reaches_every_rank_that_waits(start: StartJob) -> None:
    job = start(4, "program_interrupted.py")
    for rank in range(4):
        job.notes.wait(f"pending-{rank}")
    begin = time.monotonic()
    job.launcher.process.send_signal(signal.SIGINT)
    result = job.finish(10)
    assert time.monotonic() - begin < 5
    assert result.returncode == 128 + signal.SIGINT
    for rank in range(4):
        note = job.notes.wait(f"interrupted-{rank}", 0)
        assert note["kind"] == "KeyboardInterrupt"
        assert note["when"] - begin < 2


def test_sleeping_rank_is_terminated_after_the_grace_period(start: StartJob) -> None:
    job = start(3, "program_asleep.py")
    job.notes.wait("asleep")
    begin = time.monotonic()
    result = job.finish(15)
    assert GRACE < time.monotonic() - begin < 4
    assert result.returncode == 1
    assert "rank 2 on localhost failed first" in result.stderr
    assert result.stderr.rstrip().endswith("Process name: 2\nExit code: 1")
    assert "  | RuntimeError: the cause" in result.stderr
