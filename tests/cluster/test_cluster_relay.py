"""Someone listens where rank 0 seems to be, and passes on what comes: it is avoided, or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from cluster_hosts import ROOT, Hosts, run

RANK = ROOT / "tests" / "started" / "started_rank.py"
RELAY = Path(__file__).with_name("cluster_relay.py")
HANDSHAKE_BYTES = 80  # the longer direction


def start(hosts: Hosts, host: int, *words: str | Path, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        hosts.words(host, sys.executable, *words),
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def srun(hosts: Hosts, rank: int, home: Path) -> subprocess.Popen[str]:
    """A rank as srun starts it: it finds rank 0 by a file in the common home directory."""
    return start(
        hosts,
        rank + 1,
        RANK,
        "well",
        HOME=str(home),
        SLURM_JOB_ID="7",
        SLURM_STEP_ID="0",
        SLURM_PROCID=str(rank),
        SLURM_NTASKS="2",
        SLURM_STEP_NODELIST="host[1-2]",
        SLURM_STEP_TASKS_PER_NODE="1(x2)",
        SLURM_NODEID=str(rank),
        SLURM_LOCALID="0",
        SLURMD_NODENAME=f"host{rank + 1}",
        HOROVOD_START_TIMEOUT="8",
    )


def relayed(hosts: Hosts, where: int, home: Path) -> tuple[list[int | None], str, dict[str, int]]:
    """Two ranks, the relay on host `where`: the ranks' exit codes and output, and what the relay counted."""
    processes = []
    try:
        processes.append(first := srun(hosts, 0, home))
        processes.append(relay := start(hosts, where, RELAY, str(first.pid)))
        assert relay.stdout is not None
        assert (line := relay.stdout.readline()) == "ready\n", line + relay.stdout.read()
        processes.append(second := srun(hosts, 1, home))
        outputs = [process.communicate(timeout=100)[0] for process in (first, second)]
        counts, _ = relay.communicate("", timeout=60)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [first.returncode, second.returncode], "".join(outputs), json.loads(counts)


def test_an_address_of_this_host_does_not_lead_to_another(hosts: Hosts, tmp_path: Path) -> None:
    codes, output, counts = relayed(hosts, 2, tmp_path)
    assert codes == [0, 0] and counts["connections"] == 0, (output, counts)


def test_who_passes_a_connection_on_is_refused(hosts: Hosts, tmp_path: Path) -> None:
    """Even if it is the only way: on a third host, to which the address leads from that of rank 1."""
    space = hosts.namespace(2)
    docker = ["172.17.0.1/16", "dev", "docker0"]
    routes = [["172.17.0.1", "via", "192.0.2.3"]]
    routes += [["blackhole", address] for address in ("192.0.2.1", "198.51.100.1", "2001:db8::1")]
    try:
        run("ip", "-n", space, "addr", "del", *docker)
        for route in routes:
            run("ip", "-n", space, "route", "add", *route)
        codes, output, counts = relayed(hosts, 3, tmp_path)
    finally:
        for route in routes:
            run("ip", "-n", space, "route", "del", *route)
        run("ip", "-n", space, "addr", "add", *docker)
    assert 0 not in codes and "172.17.0.1: the other end refused" in output, output
    assert counts["connections"] > 0 and counts["passed"] <= HANDSHAKE_BYTES, counts
