"""A rank that is stopped, and a host that is warned: what survivors make of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
from steps_job import StepsJob
from util_lag import Lag

A, B = "localhost", "127.0.0.1"  # one machine that plays two


@pytest.mark.parametrize("victim", [2, 0])
def test_a_stopped_rank_is_left_behind(tmp_path: Path, victim: int) -> None:
    env = {"HOROVOD_PEER_TIMEOUT_SECONDS": "3"}
    flags = ["-np", "4", "--min-np", "2", "-H", f"{A}:2,{B}:2"]
    with contextlib.closing(StepsJob(tmp_path, *flags, env=env)) as job:
        members = job.world(4)
        stopped = psutil.Process(members[victim]["pid"])
        os.kill(stopped.pid, signal.SIGSTOP)
        at = time.time()
        survivors = job.world(2)
        kept = [note for note in members if note["host"] != members[victim]["host"]]
        assert [note["pid"] for note in survivors] == [note["pid"] for note in kept]
        assert max(note["time"] for note in survivors) - at < 30
        job.until(
            lambda: not stopped.is_running() or stopped.status() == "zombie", "the end of the stopped one"
        )
        reason = str(job.events("generation", generation=survivors[0]["generation"])[0])
        assert "silent" in reason, reason
        ends = job.end()
        assert len(ends) == 2 and ends[0]["history"] == [4, 2]


WHO_IS_LEFT = "another rank has ended; the job waits for rank 1 (127.0.0.1[0])"
TWO = ["-np", "2", "--min-np", "1", "-H", f"{A}:1,{B}:1"]


def test_the_last_one_is_stopped_and_nobody_is_left_to_notice(tmp_path: Path) -> None:
    with contextlib.closing(StepsJob(tmp_path, *TWO, "--elastic-timeout", "8", "--verbose")) as job:
        first, second = job.under_way(2)
        os.kill(second["pid"], signal.SIGSTOP)
        os.kill(first["pid"], signal.SIGKILL)
        assert job.process.wait(60) == 128 + signal.SIGKILL
        assert WHO_IS_LEFT in job.output
        assert f"{B}[0] is killed: did not react" in job.output
        assert f"{B}[0] was ended by signal 9 (SIGKILL) from horovodrun" in job.output


def test_a_job_may_wait_for_months(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{A}:1\n{B}:1\n")
    flags = ["-np", "2", "--min-np", "2", "--elastic-timeout", "10000000"]
    with contextlib.closing(StepsJob(tmp_path, *flags, "--host-discovery-script", f"cat {hosts}")) as job:
        os.kill(job.under_way(2)[1]["pid"], signal.SIGKILL)
        job.until(lambda: "is not used any more" in job.output, "the loss of a host")
        time.sleep(1)
        hosts.write_text(f"{A}:1\n127.0.1.1:1\n")
        job.until(lambda: len(job.notes(generation=2)) == 2, "another world")
        job.end()


def test_nobody_is_blamed_while_the_output_is_not_read(tmp_path: Path) -> None:
    """As by a pager: what agents say stands behind it."""
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{A}:1\n")
    flags = ["-np", "1", "--min-np", "1", "--start-timeout", "4", "--host-discovery-script", f"cat {hosts}"]
    reader, writer = os.pipe()
    with (
        contextlib.closing(StepsJob(tmp_path, *flags, env={"LOUD": "200000"}, stdout=writer)) as job,
        open(reader, "rb") as output,
    ):
        os.close(writer)
        time.sleep(3)  # nothing fits any more
        hosts.write_text(f"{A}:1\n{B}:1\n")
        time.sleep(8)
        threading.Thread(target=output.read, daemon=True).start()
        job.world(2)
        job.end()
        assert "is not used any more" not in job.output


def test_the_last_one_is_busy_and_may_take_its_time(tmp_path: Path) -> None:
    busy = {"BUSY": "15"}
    with contextlib.closing(StepsJob(tmp_path, *TWO, "--elastic-timeout", "8", env=busy)) as job:
        first, second = job.world(2)
        job.until(lambda: bool(job.notes("busy")), "long work")
        os.kill(first["pid"], signal.SIGKILL)
        assert [note["pid"] for note in job.world(1)] == [second["pid"]]
        assert WHO_IS_LEFT in job.output
        assert job.end()[0]["history"] == [2, 1]


def test_nobody_waits_for_a_newcomer_that_starts_slowly(tmp_path: Path, lag: Lag) -> None:
    """The ranks go on until it is ready, and the change itself takes no second."""
    began = time.monotonic()
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{A}:1\n")
    flags = ["-np", "1", "--min-np", "1", "--host-discovery-script", f"cat {hosts}"]
    with contextlib.closing(StepsJob(tmp_path, *flags, env={"SLOW_START": "3"})) as job:
        job.under_way(1)
        (tmp_path / "new").write_text(f"{A}:1\n{B}:1\n")
        (tmp_path / "new").rename(hosts)
        at = time.time()
        grown = job.world(2)
        (notice,) = job.events("notice")
        assert notice["time"] - at > 3, "the first rank was interrupted too early"
        assert max(note["time"] for note in grown) - notice["time"] <= 1 + lag.allowance_since(began)
        assert grown[0]["step"] > 50, "it did not go on meanwhile"
        assert len(job.end()) == 2


def agent_of(job: StepsJob, pid: int) -> psutil.Process:
    """The agent that has started a worker."""
    parent = psutil.Process(pid).parent()
    assert parent is not None and "horovod.runner.agent" in parent.cmdline()
    return parent


@pytest.mark.parametrize("whom", ["agent", "worker", "everyone"])
def test_a_host_that_is_warned_leaves_in_order(tmp_path: Path, whom: str) -> None:
    flags = ["-np", "4", "--min-np", "2", "-H", f"{A}:2,{B}:2", "--preemption-grace", "30"]
    log, timeline = tmp_path / "log.jsonl", tmp_path / "t.json"
    watched = ["--event-log", str(log), "--timeline", str(timeline)]
    with contextlib.closing(StepsJob(tmp_path, *flags, *watched)) as job:
        members = job.world(4)
        leaving = [psutil.Process(note["pid"]) for note in members if note["host"] == B]
        agent = agent_of(job, leaving[0].pid)
        guardian = agent.parent()
        assert guardian is not None
        warned = {"agent": [agent], "worker": leaving[:1], "everyone": [guardian, agent, *leaving]}
        for process in warned[whom]:
            process.send_signal(signal.SIGTERM)
        survivors = job.world(2)
        stayed = [note for note in members if note["host"] == A]
        assert [note["pid"] for note in survivors] == [note["pid"] for note in stayed]
        psutil.wait_procs([*leaving, agent], timeout=60)
        assert not agent.is_running()
        event = job.events("generation", generation=survivors[0]["generation"])[0]
        assert "blacklist" not in job.output, event
        # Nothing was rolled back, so nothing has to be synchronised.
        ends = job.end()
        assert len(ends) == 2 and ends[0]["history"] == [4, 2]
        assert event["sync"] is False
    (reset,) = (each for line in log.open() if (each := json.loads(line))["event"] == "reset")
    shown = [each for each in json.loads(timeline.read_text())["traceEvents"] if each.get("s") == "g"]
    assert [each["name"] for each in shown] == ["world 2: 2 ranks"]
    assert reset["reason"] == shown[0]["args"]["reason"] and f"{B} goes away" in reset["reason"]
