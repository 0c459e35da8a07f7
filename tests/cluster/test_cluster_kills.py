"""SIGKILL of anything that holds a job over several hosts together: nothing is left anywhere after 3 s."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from cluster_hosts import Hosts
from cluster_job import ClusterJob
from runner_util import wait_until
from util_lag import Lag

RANK = Path(__file__).with_name("cluster_tree.py")


def processes(hosts: Hosts, host: int, words: str) -> list[psutil.Process]:
    """Those on a host whose command line contains something."""
    return [psutil.Process(pid) for pid, line in hosts.command_lines(host).items() if words in line]


def victims(hosts: Hosts, job: ClusterJob, name: str) -> list[psutil.Process]:
    if name == "launcher":
        return [psutil.Process(job.process.pid)]
    if name == "ssh":
        return [found for found in processes(hosts, 1, "ssh ") if found.name() == "ssh"]
    what, host = name.split()
    if what == "rank":
        return processes(hosts, int(host[-1]), "cluster_tree")[-1:]
    agents = [found for found in processes(hosts, int(host[-1]), "runner.agent") if found.name() != "ssh"]
    assert len(agents) == 2
    guardian, agent = agents if agents[1].ppid() == agents[0].pid else reversed(agents)
    assert agent.ppid() == guardian.pid
    if what == "sshd":
        sshd = guardian.parent()
        assert sshd is not None and sshd.name().startswith("sshd")
        return [sshd]
    return [agent if what == "agent" else guardian]


def asleep(hosts: Hosts, host: int) -> int:
    """How many families of a host have their last member."""
    return sum(line.startswith("sleep 1000") for line in hosts.command_lines(host).values())


@pytest.mark.parametrize(
    "names",
    [
        ["launcher"],
        ["ssh"],
        ["sshd host2"],
        ["agent host1"],
        ["agent host2"],
        ["guardian host1"],
        ["guardian host2"],
        ["rank host2"],
        ["launcher", "ssh", "agent host1", "agent host2"],
    ],
    ids="+".join,
)
def test_nobody_is_left(hosts: Hosts, lag: Lag, names: list[str]) -> None:
    job = ClusterJob(hosts, "-np", "2", "-H", "host1,host2", sys.executable, RANK)
    job.lines_until(2, "running")
    wait_until(lambda: all(asleep(hosts, host) == 2 for host in (1, 2)), 60, "the families are not complete")
    chosen = [victim for name in names for victim in victims(hosts, job, name)]
    assert len(chosen) == len(names)
    since = time.monotonic()
    for victim in chosen:
        os.kill(victim.pid, signal.SIGKILL)
    try:
        wait_until(lambda: not hosts.everyone(), 30, f"processes are left after SIGKILL of {names}")
    finally:
        print(f"after {time.monotonic() - since:.2f} s:", [hosts.command_lines(host) for host in (1, 2)])
    assert time.monotonic() - since < 3 + lag.allowance_since(since)
    job.finish()
