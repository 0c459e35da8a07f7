"""What users see of an elastic job: prefixes and files by rank, words that scripts look for, its end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from runner_util import Launcher, wait_until
from steps_job import StepsJob
from util_paths import ROOT

from horovod.runner.elastic.events import Events
from horovod.runner.elastic.output import WorkerOutput
from horovod.runner.elastic.places import places
from horovod.runner.launcher.output import Console

TWO = ["-np", "2", "--min-np", "1", "-H", "localhost:1,127.0.0.1:1"]
WORLD = [sys.executable, str(Path(__file__).with_name("program_world.py"))]


def test_a_worker_gets_another_rank(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Lines are shown under the rank of the time when they were complete; files go on."""
    console = Console()
    output = WorkerOutput(console, str(tmp_path))
    output.add(7, 2)
    output.feed(7, "stdout", b"one\nhalf")
    output.renumber(7, 0)
    output.feed(7, "stdout", b"two\n")
    output.feed(7, "stderr", b"oh\n")
    assert output.tail(7) == ["oh"]
    output.close()
    console.finish(lambda: False)
    assert capfd.readouterr().out == "[2]<stdout>:one\n[2]<stdout>:half\n[0]<stdout>:two\n"
    assert (tmp_path / "rank.2/stdout").read_text() == "[2]<stdout>:one\n[2]<stdout>:half\n"
    again = WorkerOutput(Console(), str(tmp_path))
    again.add(8, 0)
    again.feed(8, "stdout", b"later\n")
    again.close()
    assert (tmp_path / "rank.0/stdout").read_text() == "[0]<stdout>:two\n[0]<stdout>:later\n"


def test_a_file_that_can_not_be_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rank.0").write_text("in the way")
    console = Console()
    output = WorkerOutput(console, str(tmp_path))
    output.add(1, 0)
    output.feed(1, "stdout", b"a\nb\n")
    output.feed(1, "stdout", b"c\n")
    console.finish(lambda: False)
    out, err = capfd.readouterr()
    assert out.count("\n") == 3 and err.count("writing") == 1


def test_places() -> None:
    """The local rank is the slot, also above a gap."""
    found = places([("a", 0), ("a", 2), ("b", 0)])
    assert [(each.rank, each.local_rank, each.local_size) for each in found] == [
        (0, 0, 2),
        (1, 2, 2),
        (2, 0, 1),
    ]
    assert [(each.cross_rank, each.cross_size) for each in found] == [(0, 2), (0, 1), (1, 2)]


def test_events_of_a_full_disk(capsys: pytest.CaptureFixture[str]) -> None:
    events = Events("/dev/full")
    problem = events.write("generation", generation=1)
    assert problem is not None and "/dev/full" in problem
    assert events.write("generation", generation=2) is None


def test_words(tmp_path: Path) -> None:
    """Those that scripts look for, at level info."""
    stop = tmp_path / "stop"
    stop.touch()
    job = Launcher(*TWO, "--log-level", "info", *WORLD, str(stop), env={"PYTHONPATH": str(ROOT)})
    result = job.finish(60)
    assert result.returncode == 0, result.stderr
    for words in (
        "start worker process: localhost[0]",
        "start worker process: 127.0.0.1[0]",
        "record state: localhost[0] = READY",
        "all 2 workers recorded",
        "record state: 127.0.0.1[0] = SUCCESS",
        "success count == 2 -> stop running",
    ):
        assert f"horovodrun: {words}\n" in result.stderr
    assert "generation 1: 2 ranks on localhost:1, 127.0.0.1:1; the start of the job" in result.stderr


def test_words_of_waiting_and_of_a_reset(tmp_path: Path) -> None:
    hosts, new = tmp_path / "hosts", tmp_path / "new"
    hosts.write_text("localhost:1\n")
    flags = ["-np", "2", "--min-np", "1", "--host-discovery-script", f"cat {hosts}", "--log-level", "info"]
    with contextlib.closing(StepsJob(tmp_path, *flags)) as job:
        job.until(lambda: "horovodrun: wait for available slots: 2\n" in job.output, "waiting for slots")
        new.write_text("localhost:1\n127.0.0.1:1\n")
        new.rename(hosts)
        job.under_way(2)
        new.write_text("localhost:1\n127.0.0.1:0\n")  # takes it away
        new.rename(hosts)
        job.world(1)
        job.end()
        assert "horovodrun: reset workers: 1\n" in job.output
        assert "generation 2: 1 rank on localhost:1 (were 2); 127.0.0.1 was taken away" in job.output


def test_all_fail() -> None:
    """The first one is named by host and slot, with its code and the end of its stderr."""
    job = Launcher(*TWO, "--log-level", "info", "sh", "-c", "echo no >&2; exit 7")
    result = job.finish()
    assert result.returncode == 7
    assert "blacklist failing host: " in result.stderr
    assert re.search(r"failure count == [12] -> stop running", result.stderr)
    assert "Horovod detected that one or more processes exited with non-zero status" in result.stderr
    assert "Process name: localhost[0]\nExit code: 7\n" in result.stderr or (
        "Process name: 127.0.0.1[0]\nExit code: 7\n" in result.stderr
    )
    assert "  | no\n" in result.stderr
    assert job.family() == []


def test_command_is_not_there() -> None:
    result = Launcher(*TWO, "no-such-command").finish()
    assert result.returncode == 127 and "not found" in result.stdout + result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals(tmp_path: Path, number: signal.Signals) -> None:
    """They end the job as they end any other; nothing is left, and nobody is blamed."""
    job = Launcher(*TWO, *WORLD, str(tmp_path / "stop"), env={"PYTHONPATH": str(ROOT)})
    job.wait_for(2, '"generation": 1')
    job.process.send_signal(number)
    result = job.finish(60)
    assert result.returncode == 128 + number
    assert "Horovod detected" not in result.stderr and "not used any more" not in result.stderr
    assert job.family() == []


def test_launcher_is_killed(tmp_path: Path) -> None:
    job = Launcher(*TWO, *WORLD, str(tmp_path / "stop"), env={"PYTHONPATH": str(ROOT)})
    job.wait_for(2, '"generation": 1')
    os.kill(job.process.pid, signal.SIGKILL)
    wait_until(lambda: job.family() == [], 30, "something is left")


def test_an_agent_that_dies_at_the_end_is_told() -> None:
    """Nobody else can say how its ranks have ended."""
    stays = "trap 'echo told' TERM; echo ready; while :; do sleep 0.1; done"
    job = Launcher(*TWO, "--verbose", "--term-grace-period", "3", "sh", "-c", stays)
    job.wait_for(2, "ready")
    job.process.terminate()
    job.wait_for(2, "told")
    agent = job.agent()
    agent.kill()
    result = job.finish()
    assert result.returncode == 128 + signal.SIGTERM
    (host,) = re.findall(r"^horovodrun: host (\S+): its agent was ended by signal 9", result.stderr, re.M)
    assert f"horovodrun: {host}[0] was lost with its host\n" in result.stderr
    (other,) = {"localhost", "127.0.0.1"} - {host}
    assert re.search(rf"^horovodrun: {re.escape(other)}\[0\] was ended by signal 9", result.stderr, re.M)
    assert job.family() == []


def test_words_of_a_worker_that_was_forgotten(capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever holds its pipe may write when its host has long been taken away."""
    console = Console()
    output = WorkerOutput(console)
    output.add(1, 0)
    output.forget(1)
    for stream in ("stdout", "stderr"):
        output.feed(1, stream, b"late\n")
    output.close()
    console.finish(lambda: False)
    assert capfd.readouterr() == ("", "")
