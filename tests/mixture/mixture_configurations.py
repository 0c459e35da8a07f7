"""The transports and numbers of ranks with which the mixture is run."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import mpi_setup
from cluster_hosts import Hosts
from cluster_job import ClusterJob
from util_launch import Outcome, launch

PROGRAM = Path(__file__).with_name("program_mixture.py")
LAST_WORDS = 120.0  # seconds beyond the time that was asked for, enough to notice and to tell of a hang


@dataclass(frozen=True)
class Configuration:
    """`hosts`: as horovodrun -H takes them, or None: this machine."""

    name: str
    ranks: int
    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    hosts: str | None = None
    host_count: int = 3  # that there must be
    mpi: bool = False
    slow: bool = False  # left to `make soak` and `make test-slow`

    def run(self, seconds: float, *options: str, hosts: Hosts | None = None) -> Outcome:
        """`seconds` in total; `hosts` must be there if the configuration has some."""
        words = [str(PROGRAM), *self.options, *options]
        timeout = seconds + LAST_WORDS
        if self.mpi:
            return mpi_setup.get("debian").run(self.ranks, *words, timeout=timeout)
        if self.hosts is None:
            return launch(self.ranks, *words, timeout=timeout, **self.environment)
        assert hosts is not None
        argv = ["-np", str(self.ranks), "-H", self.hosts, sys.executable, *words]
        return ClusterJob(hosts, *argv, env=self.environment).end(timeout)


def _within_a_host(transport: str, ranks: int) -> Configuration:
    return Configuration(f"{transport}-{ranks}", ranks, {"HOROVOD_TRANSPORT": transport})


def _in_groups(topology: str) -> Configuration:
    ranks = sum(map(int, topology.split(",")))
    return Configuration(f"groups-{topology}", ranks, {"HOROVOD_TOPOLOGY": topology})


ALL = [
    Configuration("single", 1),
    *(_within_a_host("shm", ranks) for ranks in (2, 3, 4, 5, 8)),
    *(_within_a_host("tcp", ranks) for ranks in (2, 3, 4)),
    # A host with many ranks has leaders of parts of them.
    replace(_within_a_host("shm", 8), name="tree-8", options=("--fan-out", "2")),
    _in_groups("2,2"),
    _in_groups("2,2,2"),
    replace(_in_groups("3,1,2"), slow=True),
    # Several connections between two ranks, also those that process sets get later.
    Configuration("streams-2,2", 4, {"HOROVOD_TOPOLOGY": "2,2", "HOROVOD_STREAMS_PER_PEER": "3"}),
    # So many that they are combined in rows.
    replace(_in_groups("2,2" + 15 * ",1"), name="groups-17", slow=True),
    replace(_within_a_host("tcp", 18), slow=True),
    # The engine forgets what was agreed on while ranks use it; and nothing is fused.
    Configuration("little-cache-3", 3, {"HOROVOD_TRANSPORT": "shm", "HOROVOD_CACHE_CAPACITY": "8"}),
    Configuration("unfused-3", 3, {"HOROVOD_TRANSPORT": "tcp", "HOROVOD_FUSION_THRESHOLD": "0"}, slow=True),
    Configuration("hosts-2x2", 4, hosts="host1:2,host2:2"),
    Configuration("hosts-3x2", 6, hosts="host1:2,host2:2,host3:2"),
    Configuration(
        "hosts-16x2", 32, hosts=",".join(f"host{host}:2" for host in range(1, 17)), host_count=16, slow=True
    ),
    Configuration("mpi-3", 3, mpi=True),
]
