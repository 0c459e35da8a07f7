"""However a job over several hosts ends: survivors raise in time, the cause is told, nobody is left anywhere.

That nobody is left is checked by the fixture after every test.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cluster_hosts import Hosts
from cluster_job import RANK, ClusterJob
from runner_util import wait_until
from util_lag import Lag

from horovod.runner.launcher.event_log import read

PYTHON = sys.executable
ON_DEATH, ON_SILENCE = 1.0, 12.0  # seconds within which survivors must raise
BUSY = 1.0  # more, because this machine has all hosts


class Running:
    """Six ranks on three hosts in the middle of their work."""

    def __init__(self, hosts: Hosts, lag: Lag, numbers: int, log: Path, *flags: str) -> None:
        where = ["-np", "6", "-H", "host1:2,host2:2,host3:2", "--event-log", str(log), *flags]
        self._lag = lag
        self.log = log
        self.job = ClusterJob(hosts, *where, PYTHON, RANK, "loop", str(numbers))
        self.pids: dict[int, int] = {}
        for line in self.job.lines_until(6, "running "):
            match = re.match(r"\[(\d)\]<stdout>:running (\d+)", line)
            if match:
                self.pids[int(match[1])] = int(match[2])
        assert sorted(self.pids) == list(range(6))

    def allowance(self, since: float) -> float:
        """Seconds by which a machine that is busy with other things may have made it late."""
        return BUSY + self._lag.allowance_since(since)

    def raised_after(self, output: str, since: float) -> dict[int, float]:
        """Seconds after which each rank raised."""
        found = re.findall(r"\[(\d)\]<stdout>:raised ([\d.]+) ", output)
        after = {int(rank): float(at) - since for rank, at in found}
        print("raised after", {rank: round(seconds, 2) for rank, seconds in sorted(after.items())})
        return after


@pytest.fixture
def running(hosts: Hosts, lag: Lag, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    job = Running(hosts, lag, getattr(request, "param", 1000), tmp_path / "events.jsonl")
    yield job
    if job.job.process.poll() is None:
        job.job.process.kill()
        job.job.process.communicate()


def agent(hosts: Hosts, host: int) -> psutil.Process:
    """The agent process; its parent is the guardian."""
    found = [
        psutil.Process(pid)
        for pid, line in hosts.command_lines(host).items()
        if "horovod.runner.agent" in line and not line.startswith("ssh ")
    ]
    return next(each for each in found if any(each.ppid() == other.pid for other in found))


# The last one dies while large blocks are on their way between the hosts and in shared memory.
@pytest.mark.parametrize(("running", "victim"), [(1000, 3), (1000, 0), (8 << 20, 3)], indirect=["running"])
def test_killed_rank(running: Running, victim: int) -> None:
    since = time.monotonic()
    os.kill(running.pids[victim], signal.SIGKILL)
    result = running.job.finish()
    assert result.returncode == 137
    after = running.raised_after(result.stdout, since)
    assert sorted(after) == [rank for rank in range(6) if rank != victim]
    assert max(after.values()) < ON_DEATH + running.allowance(since)
    cause = f"rank {victim} on host{victim // 2 + 1} failed first: it was ended by signal 9 (SIGKILL)"
    assert f"horovodrun: {cause}" in result.stderr
    assert f"Process name: {victim}" in result.stderr.splitlines()[-2]


def test_stopped_leader_is_named_by_all(hosts: Hosts, lag: Lag, tmp_path: Path) -> None:
    # Rank 3, of its host, knows and ends seconds before the others, which lose their connections to it in the
    # middle of an operation.
    running = Running(hosts, lag, 8 << 20, tmp_path / "events.jsonl", "--grace-period", "14")
    since = time.monotonic()
    os.kill(running.pids[2], signal.SIGSTOP)
    result = running.job.finish()
    after = running.raised_after(result.stdout, since)
    assert sorted(after) == [0, 1, 3, 4, 5] and max(after.values()) < ON_SILENCE + running.allowance(since)
    assert after[3] < 4 + running.allowance(since)
    said = r":raised [\d.]+ rank 2 \(host host2, pid \d+\) has been silent"
    assert len(re.findall(said, result.stdout)) == 5


def test_traceback_of_the_culprit_is_last(hosts: Hosts) -> None:
    code = (
        "import horovod.numpy as hvd, numpy as np\nhvd.init()\n"
        "for step in range(10):\n"
        "    hvd.allreduce(np.ones(5), name='x')\n"
        "    if hvd.rank() == 2 and step == 5: raise ArithmeticError('the culprit')\n"
    )
    result = ClusterJob(hosts, "-np", "3", "-H", "host1,host2,host3", PYTHON, "-c", code).finish()
    assert result.returncode == 1
    *_, report = result.stderr.partition("horovodrun: rank 2 on host3 failed first")
    assert "ArithmeticError: the culprit" in report and "HorovodInternalError" not in report


def test_lost_ssh_connection(hosts: Hosts, running: Running) -> None:
    sshd = psutil.Process(agent(hosts, 3).ppid()).ppid()
    assert "sshd" in hosts.command_lines(3)[sshd]
    since = time.monotonic()
    os.kill(sshd, signal.SIGKILL)
    result = running.job.finish()
    assert result.returncode == 1
    after = running.raised_after(result.stdout, since)
    assert {0, 1, 2, 3} <= set(after) and max(after.values()) < ON_DEATH + 0.5 + running.allowance(since)
    assert "the connection to host3 was lost: ssh ended with code 255" in result.stderr
    assert "failed first" not in result.stderr


def test_killed_agent(hosts: Hosts, running: Running) -> None:
    since = time.monotonic()
    agent(hosts, 2).kill()
    result = running.job.finish()
    after = running.raised_after(result.stdout, since)
    assert {0, 1, 4, 5} <= set(after) and max(after.values()) < ON_DEATH + running.allowance(since)
    assert result.returncode == 1
    assert "the connection to host2 was lost" in result.stderr
    with running.log.open("rb") as lines:
        events = read(lines)
    (lost,) = [event for event in events if event["event"] == "host_lost"]
    assert (lost["host"], lost["ranks"]) == ("host2", [2, 3]) and lost["reason"]
    assert events.index(lost) < [event["event"] for event in events].index("job_end")


def test_killed_launcher(hosts: Hosts, running: Running) -> None:
    since = time.monotonic()
    running.job.process.kill()
    wait_until(lambda: not hosts.everyone(), 30, "processes are left after kill -9 of the launcher")
    assert time.monotonic() - since < 4 + running.allowance(since)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(running: Running, number: int, code: int) -> None:
    running.job.process.send_signal(number)
    assert running.job.finish().returncode == code


def test_sigterm_for_every_process_leaves_time_to_save(hosts: Hosts) -> None:
    # As Slurm does it: also the connections to the other hosts get the signal.
    code = (
        "import signal, time\n"
        "def save(*_): time.sleep(1.5); print('saved', flush=True); raise SystemExit\n"
        "signal.signal(signal.SIGTERM, save); print('ready', flush=True); time.sleep(60)"
    )
    job = ClusterJob(hosts, "-np", "2", "-H", "host1,host2", PYTHON, "-c", code)
    job.lines_until(2, "ready")
    for pid in hosts.command_lines(1):
        os.kill(pid, signal.SIGTERM)
    result = job.finish()
    assert result.returncode == 143
    assert "[1]<stdout>:saved" in result.stdout


def test_stopped_launcher_does_not_end_the_job(hosts: Hosts, running: Running) -> None:
    # Ctrl-Z: the machines are all well, and the ranks go on.
    running.job.process.send_signal(signal.SIGSTOP)
    time.sleep(14)  # longer than the silence after which a machine is given up
    assert all(os.path.exists(f"/proc/{pid}") for pid in running.pids.values())
    running.job.process.send_signal(signal.SIGCONT)
    running.job.process.terminate()
    assert running.job.finish().returncode == 143


@pytest.mark.parametrize("how", ["packets are lost", "the cable is out"])
def test_link_that_fails_for_some_seconds_does_not_end_the_job(hosts: Hosts, how: str) -> None:
    job = ClusterJob(hosts, "-np", "4", "-H", "host1:2,host3:2", PYTHON, RANK, "outage")
    job.lines_until(4, "running")
    if how == "packets are lost":
        hosts.cut_off(3)
    else:
        hosts.plug(3, "down")
    try:
        time.sleep(5)  # how long it fails; half of HOROVOD_HOST_TIMEOUT_SECONDS
    finally:
        hosts.mend(3)
        hosts.plug(3, "up")
    result = job.finish()
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("went on after ") == 4


def test_partition(hosts: Hosts, running: Running) -> None:
    since = time.monotonic()
    hosts.cut_off(3)
    try:
        # The ranks and the agent on the lost host give up by themselves, in sight of nobody.
        wait_until(lambda: not hosts.pids(3) or only_sshd(hosts, 3), 40, "host3 goes on without the others")
        assert time.monotonic() - since < ON_SILENCE + 1 + running.allowance(since)
        result = running.job.finish()
    finally:
        hosts.mend(3)
        for pid in hosts.pids(3):  # what is left of sshd knows nothing of the end of its connection
            os.kill(pid, signal.SIGKILL)
    after = running.raised_after(result.stdout, since)
    assert sorted(after) == [0, 1, 2, 3] and max(after.values()) < ON_SILENCE + running.allowance(since)
    assert result.returncode == 1
    assert "the connection to host3 was lost: Connection timed out" in result.stderr
    assert "failed first" not in result.stderr


def only_sshd(hosts: Hosts, host: int) -> bool:
    return all(line.startswith("sshd") for line in hosts.command_lines(host).values())
