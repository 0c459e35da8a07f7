"""Someone listens where rank 0 seems to be, and passes on what comes: no launcher lets that gain anything."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cluster_hosts import Hosts, run
from cluster_starts import FOUND, HOROVODRUN, NAMED, PORT, started
from runner_util import wait_until
from util_paths import ROOT

RELAY = Path(__file__).with_name("cluster_relay.py")
HANDSHAKE_BYTES = 80  # the longer direction
SHARED = "172.17.0.1"  # of docker0, on every host
ANY, REDIRECTED = "0.0.0.0", "9"  # where redirected connections come out


def cheap(ways: Sequence[str], *chosen: str) -> list[object]:
    """All ways, of which only the chosen ones are for every day."""
    return [way if way in chosen else pytest.param(way, marks=pytest.mark.slow) for way in ways]


class Spy:
    """The relay, which counts what came."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def counts(self) -> dict[str, int]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        counted: dict[str, int] = json.loads(self._process.stdout.readline())
        return counted


@contextlib.contextmanager
def relay(hosts: Hosts, host: int, address: str, port: str, target: str, change: str) -> Iterator[Spy]:
    words = hosts.words(host, sys.executable, RELAY, hosts.namespace(1), address, port, target, change)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        assert (line := process.stdout.readline()) == "ready\n", line + process.stdout.read()
        yield Spy(process)
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def redirected(hosts: Hosts, host: int, chain: str) -> Iterator[None]:
    """As if someone listened on every port of the shared address."""
    rule = ["-d", SHARED, "-p", "tcp", "-j", "REDIRECT", "--to-ports", REDIRECTED]
    hosts.iptables(host, "-t", "nat", "-A", chain, *rule)
    try:
        yield
    finally:
        hosts.iptables(host, "-t", "nat", "-F")


@contextlib.contextmanager
def only_the_shared_address(hosts: Hosts, through: str) -> Iterator[None]:
    """host2 gets to host1 by no other, and that address leads elsewhere. ssh from host1 still works."""
    space = hosts.namespace(2)
    docker = [f"{SHARED}/16", "dev", "docker0"]
    routes = [[SHARED, "via", through], ["blackhole", "2001:db8::1"]]
    run("ip", "-n", space, "addr", "del", *docker)
    try:
        for route in routes:
            run("ip", "-n", space, "route", "add", *route)
        for address in ("192.0.2.1", "198.51.100.1"):
            hosts.iptables(2, "-A", "OUTPUT", "-d", address, "-p", "tcp", "--syn", "-j", "REJECT")
        yield
    finally:
        hosts.mend(2)
        for route in routes:
            run("ip", "-n", space, "route", "del", *route)
        run("ip", "-n", space, "addr", "add", *docker)


@pytest.mark.parametrize("way", cheap([HOROVODRUN, *FOUND, *NAMED], HOROVODRUN, "srun", "torchrun"))
def test_an_address_of_this_host_does_not_lead_to_another(hosts: Hosts, way: str, tmp_path: Path) -> None:
    """Though whoever listens there has a friend on host1, who knocks at the right door."""
    with (
        redirected(hosts, 2, "OUTPUT"),
        relay(hosts, 2, ANY, REDIRECTED, SHARED, "nothing") as spy,
        started(hosts, way, tmp_path / "home") as job,
    ):
        codes, output = job.outcome()
        counts = spy.counts()
    assert set(codes) == {0} and counts["connections"] == 0, (output, counts)


@pytest.mark.parametrize("way", cheap([HOROVODRUN, *FOUND, "by hand"], HOROVODRUN, "mpirun"))
def test_who_passes_a_connection_on_is_refused(hosts: Hosts, way: str, tmp_path: Path) -> None:
    """Even if it is the only way: on a third host, to which the address leads from that of rank 1."""
    with (
        only_the_shared_address(hosts, "192.0.2.3"),
        redirected(hosts, 3, "PREROUTING"),
        relay(hosts, 3, ANY, REDIRECTED, "192.0.2.1", "nothing") as spy,
        started(hosts, way, tmp_path / "home", address=SHARED) as job,
    ):
        # Some look for rank 0 again and again; the first time they would not say more than the handshake.
        last = job.processes[-1]
        wait_until(lambda: last.poll() is not None or spy.counts()["ended"] >= 4, 60, "nothing was passed on")
        last.kill()
        codes, output = job.outcome(last=1)
        counts = spy.counts()
    assert 0 not in codes, output
    assert counts["connections"] > 0 and counts["passed"] <= HANDSHAKE_BYTES, (counts, output)


@pytest.mark.parametrize("change", ["nothing", "frames"])
@pytest.mark.parametrize("way", cheap(list(NAMED), "kubernetes"))
def test_who_stands_at_an_address_that_was_named(hosts: Hosts, way: str, change: str, tmp_path: Path) -> None:
    """The name of rank 0's host leads to someone else, who can listen to the rendezvous, and no more."""
    names = tmp_path / "hosts"
    names.write_text((hosts.directory / "hosts").read_text().replace("192.0.2.1 host1", "192.0.2.3 host1"))
    with (
        relay(hosts, 3, "192.0.2.3", str(PORT), "192.0.2.1", change) as spy,
        started(hosts, way, tmp_path / "home", names=names) as job,
    ):
        codes, output = job.outcome(last=1)
        counts = spy.counts()
    assert counts["passed"] > HANDSHAKE_BYTES, counts
    if change == "nothing":
        assert codes == [0], output
    else:
        assert 0 not in codes and "wrong authentication code" in output, output
