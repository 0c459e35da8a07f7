"""The collectives on two hosts, and on sixteen."""

import sys
from pathlib import Path

import cluster_hosts
import pytest
from check_launch import Launch
from cluster_hosts import Hosts
from cluster_job import ClusterJob
from util_launch import Outcome


def _hosts(count: int) -> Hosts:
    reason = cluster_hosts.why_not()
    if reason is not None:
        pytest.skip(reason)
    return cluster_hosts.shared(count)


def on_hosts(np: int, *command: str | Path, timeout: float, **environment: str) -> Outcome:
    """As util_launch.launch()."""
    where = f"host1:{np // 2},host2:{np - np // 2}"
    return _run(_hosts(3), np, where, *command, timeout=timeout, **environment)


def on_sixteen(np: int, *command: str | Path, timeout: float, **environment: str) -> Outcome:
    """The same with two ranks on each."""
    where = ",".join(f"host{host}:2" for host in range(1, 17))
    return _run(_hosts(16), np, where, *command, timeout=timeout, **environment)


def _run(
    hosts: Hosts, np: int, where: str, *command: str | Path, timeout: float, **environment: str
) -> Outcome:
    words = ["-np", str(np), "-H", where, sys.executable, *command]
    outcome = ClusterJob(hosts, *words, env=environment).end(timeout)
    hosts.wait_until_empty()
    return outcome


CHECKS = ["../conformance/checks_conformance.py"]
DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
LAUNCHES = [
    Launch("hosts-2-2", 4, CHECKS, DYNAMIC, start=on_hosts),
    Launch("hosts-16x2", 32, CHECKS, DYNAMIC, start=on_sixteen, timeout=400, slow=True),
]
