"""Ctrl-C, kill -9 of the launcher in the middle of a job, and a rank that does not react to anything."""

from __future__ import annotations

import signal
import time

import pytest
from fault_job import GRACE, StartJob
from runner_util import wait_until
from util_lag import Lag


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_murdered_launcher(start: StartJob, lag: Lag, transport: str) -> None:
    job = start(3, "program_endless.py", HOROVOD_TRANSPORT=transport)
    for rank in range(3):
        job.notes.wait(f"running-{rank}")
    job.launcher.process.kill()
    begin = time.monotonic()
    wait_until(lambda: not job.launcher.family(), 30, "processes are left after kill -9 of the launcher")
    assert time.monotonic() - begin < 2 + lag.allowance_since(begin)
    job.finish(30)


def test_ctrl_c_reaches_every_rank_that_waits(start: StartJob, lag: Lag) -> None:
    job = start(4, "program_interrupted.py")
    for rank in range(4):
        job.notes.wait(f"pending-{rank}")
    begin = time.monotonic()
    job.launcher.process.send_signal(signal.SIGINT)
    result = job.finish(60)
    allowance = lag.allowance_since(begin)
    assert time.monotonic() - begin < 5 + allowance
    assert result.returncode == 128 + signal.SIGINT
    for rank in range(4):
        note = job.notes.wait(f"interrupted-{rank}", 0)
        assert note["kind"] == "KeyboardInterrupt"
        assert note["when"] - begin < 2 + allowance


def test_sleeping_rank_is_terminated_after_the_grace_period(start: StartJob) -> None:
    job = start(3, "program_asleep.py")
    begin = job.notes.wait("asleep")["at"]
    result = job.finish(60)
    assert time.monotonic() - begin > GRACE
    assert result.returncode == 1
    assert "rank 2 on localhost failed first" in result.stderr
    assert result.stderr.rstrip().endswith("Process name: 2\nExit code: 1")
    assert "  | RuntimeError: the cause" in result.stderr
