"""Ctrl-\\ and --stack-dump: where is every rank?"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from runner_util import Launcher, horovodrun

from horovod.runner.launcher.event_log import EventLog
from horovod.runner.launcher.signals import ASKED, SignalReceiver, catches
from horovod.runner.launcher.stack_requests import AGAIN, StackRequests


def test_answers_are_shown_and_those_of_a_stall_are_not_repeated() -> None:
    asked: list[int] = []
    woken: list[int] = []
    requests = StackRequests(lambda: not asked.append(1))
    events = EventLog()
    requests.listen(events, lambda: woken.append(1))
    assert "asking every rank" in requests.ask(100.0) and asked == [1]
    events.add("stacks", rank=1, host="b", pid=7, text="MainThread: a.py:3 f\nother: b.py:4 g", how="python")
    events.add("stacks", rank=0, text="x", reason="stall")
    assert list(requests.answers()) == [
        "horovodrun: rank 1 (b, pid 7):\n  MainThread: a.py:3 f\n  other: b.py:4 g\n"
    ]
    assert list(requests.answers()) == [] and len(woken) == 1


def test_a_second_one_within_three_seconds_kills() -> None:
    requests = StackRequests(lambda: False)
    assert "no rank can be asked" in requests.ask(100.0)
    assert requests.ask(100.0 + AGAIN - 0.1) == ""
    assert requests.ask(100.0 + AGAIN + 0.1) != ""


def test_a_job_goes_on_after_one_and_ends_after_two() -> None:
    launcher = Launcher("-np", "1", "sh", "-c", "echo up; exec sleep 100")
    launcher.wait_for(1, "up")
    launcher.process.send_signal(signal.SIGQUIT)
    assert launcher.process.stderr is not None
    assert b"no rank can be asked" in launcher.process.stderr.readline()
    assert len(launcher.family()) == 4
    time.sleep(AGAIN + 0.2)  # the first is forgotten
    for expected in (b"no rank can be asked", b"SIGQUIT: killing"):
        launcher.process.send_signal(signal.SIGQUIT)
        assert expected in launcher.process.stderr.readline()
    assert launcher.finish().returncode == 128 + signal.SIGQUIT
    assert launcher.family() == []


def test_a_launcher_that_has_not_begun_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "100"]) as other:
        assert not catches(other.pid, ASKED)
        other.kill()
    assert not catches(other.pid, ASKED)
    with SignalReceiver():
        assert catches(os.getpid(), ASKED)


def test_a_job_that_does_not_exist(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    result = horovodrun("--stack-dump", env=env)
    assert result.returncode == 1 and "no job of horovodrun runs here" in result.stderr
    result = horovodrun("--stack-dump", "20200101", env=env)
    assert result.returncode == 1 and "'20200101' is no job" in result.stderr


def test_ranks_that_cannot_answer(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    launcher = Launcher("-np", "1", "sh", "-c", "echo up; exec sleep 100", env=env)
    launcher.wait_for(1, "up")
    # Two at once are, unlike Ctrl-\, no wish to end the job.
    askers = [Launcher("--stack-dump", env=env) for _ in range(2)]
    for result in [asker.finish() for asker in askers]:
        assert result.returncode == 1 and "no rank has answered" in result.stderr
    launcher.process.send_signal(ASKED)
    assert len(launcher.family()) == 4
    launcher.process.terminate()
    assert launcher.finish().returncode == 143
