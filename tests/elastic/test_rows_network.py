"""Machines that vanish, are cut off for a while, or don't reach each other."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from cluster_hosts import Hosts
from elastic_job import FRAMEWORKS
from steps_job import StepsJob
from util_packages import needs

# The launcher's machine is host1. Silence of 3 s ends a connection between hosts.
PATIENCE = {"HOROVOD_PEER_TIMEOUT_SECONDS": "3", "HOROVOD_HOST_TIMEOUT_SECONDS": "3"}


@pytest.fixture(
    params=["numpy", *(pytest.param(name, marks=pytest.mark.slow) for name in FRAMEWORKS)], name="framework"
)
def framework_of(request: pytest.FixtureRequest) -> str:
    if request.param in FRAMEWORKS:
        needs(FRAMEWORKS[request.param])
    return str(request.param)


def test_the_machine_of_rank_0_is_switched_off(hosts: Hosts, tmp_path: Path, framework: str) -> None:
    flags = ["-np", "3", "--min-np", "2", "-H", "host2:1,host3:1,host1:1"]
    with contextlib.closing(StepsJob(tmp_path, *flags, on=hosts, framework=framework, env=PATIENCE)) as job:
        members = job.under_way(3)
        assert [note["host"] for note in members] == ["host2", "host3", "host1"]
        try:
            hosts.cut_off(2)
            at = time.time()
            for pid in hosts.pids(2):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            survivors = job.world(2)
        finally:
            hosts.mend(2)
        assert [note["pid"] for note in survivors] == [note["pid"] for note in members[1:]]
        assert max(note["time"] for note in survivors) - at < 20
        assert survivors[0]["step"] > 0
        ends = job.end()
        assert len(ends) == 2 and ends[0]["history"] == [3, 2]
    hosts.wait_until_empty()


def test_a_host_that_was_cut_off_comes_back_with_new_processes(
    hosts: Hosts, tmp_path: Path, framework: str
) -> None:
    flags = ["-np", "2", "--min-np", "1", "-H", "host1:1,host2:1", "--blacklist-cooldown-range", "1", "2"]
    with contextlib.closing(StepsJob(tmp_path, *flags, on=hosts, framework=framework, env=PATIENCE)) as job:
        members = job.under_way(2)
        try:
            hosts.cut_off(2)
            at = time.time()
            alone = job.world(1)
            assert alone[0]["pid"] == members[0]["pid"] and alone[0]["time"] - at < 15
            # Its own agent ends it there, although nobody can tell it to.
            job.until(lambda: not os.path.exists(f"/proc/{members[1]['pid']}"), "the end of the one cut off")
        finally:
            hosts.mend(2)
        again = job.world(2)
        assert again[0]["pid"] == members[0]["pid"] and again[1]["host"] == "host2"
        assert again[1]["worker"] not in (members[0]["worker"], members[1]["worker"])
        ends = job.end()
        assert len(ends) == 2 and ends[0]["history"] == [2, 1, 2]
    hosts.wait_until_empty()


def test_of_two_hosts_that_do_not_reach_each_other_the_older_one_stays(
    hosts: Hosts, tmp_path: Path, framework: str
) -> None:
    flags = ["-np", "2", "--min-np", "2", "-H", "host1:1,host2:1,host3:1", "--network-interfaces", "eth1"]
    env = {**PATIENCE, "HOROVOD_GLOO_TIMEOUT_SECONDS": "5"}
    hosts.iptables(3, "-A", "INPUT", "-s", "198.51.100.2", "-j", "DROP")
    hosts.iptables(3, "-A", "OUTPUT", "-d", "198.51.100.2", "-j", "DROP")
    try:
        with contextlib.closing(StepsJob(tmp_path, *flags, on=hosts, framework=framework, env=env)) as job:
            members = job.world(2)
            assert [note["host"] for note in members] == ["host1", "host2"]
            event = job.events("generation", generation=members[0]["generation"])[0]
            assert "host2" in str(event) and "host3" in str(event)
            assert len(job.end()) == 2
    finally:
        hosts.mend(3)
    hosts.wait_until_empty()
