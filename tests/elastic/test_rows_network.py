"""Machines that vanish, are cut off for a while, or don't reach each other."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from cluster_hosts import Hosts
from steps_job import StepsJob
from util_lag import Lag

# The launcher's machine is host1. Silence of 3 s ends a connection between hosts.
PATIENCE = {"HOROVOD_PEER_TIMEOUT_SECONDS": "3", "HOROVOD_HOST_TIMEOUT_SECONDS": "3"}
GOES_ON = 3.0 + 1.0  # seconds until the others are at work again
GIVES_UP = 8.0  # until a host that is cut off has ended its own processes
OUTAGE = 20.0


def test_the_machine_of_rank_0_is_switched_off(
    hosts: Hosts, tmp_path: Path, framework: str, lag: Lag
) -> None:
    """Row 12."""
    flags = ["-np", "3", "--min-np", "2", "-H", "host2:1,host3:1,host1:1"]
    with contextlib.closing(StepsJob(tmp_path, *flags, on=hosts, framework=framework, env=PATIENCE)) as job:
        members = job.under_way(3)
        assert [note["host"] for note in members] == ["host2", "host3", "host1"]
        try:
            at, since = time.time(), time.monotonic()
            hosts.cut_off(2)
            for pid in hosts.pids(2):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            survivors = job.world(2)
        finally:
            hosts.mend(2)
        assert [note["pid"] for note in survivors] == [note["pid"] for note in members[1:]]
        after = max(note["time"] for note in survivors) - at
        assert after <= GOES_ON + lag.allowance_since(since), after
        assert survivors[0]["step"] > 0
        ends = job.end()
        assert len(ends) == 2 and ends[0]["history"] == [3, 2]
    hosts.wait_until_empty()


def test_a_host_that_was_cut_off_comes_back_with_new_processes(
    hosts: Hosts, tmp_path: Path, framework: str, lag: Lag
) -> None:
    """Row 15."""
    flags = ["-np", "2", "--min-np", "1", "-H", "host1:1,host2:1", "--blacklist-cooldown-range", "1", "2"]
    with contextlib.closing(StepsJob(tmp_path, *flags, on=hosts, framework=framework, env=PATIENCE)) as job:
        members = job.under_way(2)
        try:
            at, since = time.time(), time.monotonic()
            hosts.cut_off(2)
            alone = job.world(1)
            after = alone[0]["time"] - at
            assert alone[0]["pid"] == members[0]["pid"]
            assert after <= GOES_ON + lag.allowance_since(since), after
            # Its own agent ends it there, although nobody can tell it to.
            job.until(lambda: not os.path.exists(f"/proc/{members[1]['pid']}"), "the end of the one cut off")
            after = time.monotonic() - since
            assert after <= GIVES_UP + lag.allowance_since(since), after
            if framework != "numpy":
                time.sleep(max(0.0, OUTAGE - after))
                assert all("sshd" in line for line in hosts.command_lines(2).values())
        finally:
            hosts.mend(2)
        again = job.world(2)
        assert again[0]["pid"] == members[0]["pid"] and again[1]["host"] == "host2"
        assert again[1]["worker"] not in (members[0]["worker"], members[1]["worker"])
        ends = job.end()
        assert len(ends) == 2 and ends[0]["history"] == [2, 1, 2]
    hosts.wait_until_empty()


def test_the_launcher_is_on_a_machine_of_its_own(hosts: Hosts, tmp_path: Path) -> None:
    flags = ["-np", "2", "--min-np", "1", "-H", "host2:1,host3:1"]
    with contextlib.closing(StepsJob(tmp_path, *flags, on=hosts, env=PATIENCE)) as job:
        members = job.under_way(2)
        assert [note["host"] for note in members] == ["host2", "host3"]
        os.kill(members[0]["pid"], signal.SIGKILL)
        assert [note["pid"] for note in job.world(1)] == [members[1]["pid"]]
        assert job.end()[0]["history"] == [2, 1]
    hosts.wait_until_empty()


def test_a_link_that_fails_for_some_seconds_costs_no_host(hosts: Hosts, tmp_path: Path) -> None:
    """Less than HOROVOD_HOST_TIMEOUT_SECONDS, which is 10."""
    flags = ["-np", "2", "--min-np", "1", "-H", "host1:1,host2:1"]
    with contextlib.closing(StepsJob(tmp_path, *flags, on=hosts)) as job:
        job.under_way(2)
        hosts.cut_off(2)
        try:
            time.sleep(5)  # how long it fails
        finally:
            hosts.mend(2)
        time.sleep(8)  # until the end would be known
        ends = job.end()
        assert len(ends) == 2 and ends[0]["history"] == [2] and ends[0]["generation"] == 1
    hosts.wait_until_empty()


@pytest.mark.parametrize("whom", ["horovod.runner.launch", "horovod.runner.agent"])
def test_a_launcher_or_an_agent_that_is_stopped_is_not_lost(hosts: Hosts, tmp_path: Path, whom: str) -> None:
    """Ctrl-Z, or a machine too busy to let it run: its kernel answers."""
    flags = ["-np", "2", "--min-np", "1", "-H", "host1:1,host2:1"]
    with contextlib.closing(StepsJob(tmp_path, *flags, on=hosts, env=PATIENCE)) as job:
        job.under_way(2)
        lines = hosts.command_lines(1 if whom.endswith("launch") else 2)
        stopped = [pid for pid, line in lines.items() if whom in line and "sshd" not in line]
        assert stopped, lines
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(GIVES_UP)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        ends = job.end()
        assert len(ends) == 2 and ends[0]["history"] == [2] and ends[0]["generation"] == 1
    hosts.wait_until_empty()


def test_of_two_hosts_that_do_not_reach_each_other_the_older_one_stays(
    hosts: Hosts, tmp_path: Path, framework: str
) -> None:
    """Row 16."""
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
