"""No false alarm: slow, busy and suspended ranks are not dead."""

from __future__ import annotations

import signal
import time

import psutil
import pytest
from fault_job import StartJob
from runner_util import wait_until

# Liveness does not depend on the transport, so one is enough as a rule.
TRANSPORTS = pytest.mark.parametrize("transport", ["shm", pytest.param("tcp", marks=pytest.mark.slow)])
STOPPED = 5.0  # seconds, well above HOROVOD_PEER_TIMEOUT_SECONDS


@TRANSPORTS
def test_busy_rank_is_not_dead(start: StartJob, transport: str) -> None:
    job = start(4, "program_busy.py", HOROVOD_TRANSPORT=transport)
    assert job.finish(120).returncode == 0
    for rank in range(4):
        job.notes.wait(f"done-{rank}", 0)


@TRANSPORTS
def test_job_that_is_stopped_and_continued_goes_on(start: StartJob, transport: str) -> None:
    job = start(3, "program_steps.py", HOROVOD_TRANSPORT=transport)
    for rank in range(3):
        job.notes.wait(f"running-{rank}")
    family = job.launcher.family()
    assert len(family) == 6  # launcher, guardian, agent, ranks
    for process in family:
        process.send_signal(signal.SIGSTOP)
    stopped = psutil.STATUS_STOPPED
    wait_until(lambda: all(process.status() == stopped for process in family), 30, "a process runs on")
    time.sleep(STOPPED)
    for process in family:
        process.send_signal(signal.SIGCONT)
    job.notes.write("enough")
    assert job.finish(120).returncode == 0
    for rank in range(3):
        job.notes.wait(f"done-{rank}", 0)
