"""The collectives on two hosts."""

import sys
from pathlib import Path

import cluster_hosts
import pytest
from check_launch import Launch
from cluster_job import ClusterJob
from util_launch import Outcome


def on_hosts(np: int, *command: str | Path, timeout: float, **environment: str) -> Outcome:
    """As util_launch.launch()."""
    reason = cluster_hosts.why_not()
    if reason is not None:
        pytest.skip(reason)
    hosts = cluster_hosts.shared()
    words = ["-np", str(np), "-H", f"host1:{np // 2},host2:{np - np // 2}", sys.executable, *command]
    outcome = ClusterJob(hosts, *words, env=environment).end(timeout)
    hosts.wait_until_empty()
    return outcome


LAUNCHES = [
    Launch(
        "hosts-2-2",
        4,
        ["../conformance/checks_conformance.py"],
        {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"},
        start=on_hosts,
    )
]
