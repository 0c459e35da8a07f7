"""What a rank knows of the others while it connects: at first of those around it, then of all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from horovod._bootstrap.rendezvous.roster import unpack
from horovod._bootstrap.world.shared_memory import pid_namespace
from horovod._net.addresses import elsewhere
from horovod._net.frames import Message


def info_of(host: str, endpoints: Sequence[tuple[str, int]]) -> Message:
    """What this process tells of itself."""
    return {"host": host, "pid": os.getpid(), "pid_namespace": pid_namespace(), "tcp": endpoints}


class Directory:
    """`hosts` are the numbers of the ranks' hosts, or groups."""

    def __init__(self, rank: int) -> None:
        self.hosts: Sequence[int] = ()
        self.pids: dict[int, int] = {}  # by rank, according to the kernel; 0 if not visible from here
        self._rank = rank
        self._infos: dict[int, Message] = {}
        self._endpoints: dict[int, list[tuple[str, int]]] = {}  # where a rank is looked for

    def learn(self, ranks: Iterable[int], packed: str) -> None:
        """Their infos, see roster.pack(); ValueError if there are not as many."""
        self._infos = dict(zip(ranks, unpack(packed), strict=True))

    def __getitem__(self, rank: int) -> Message:
        """What a rank has told; KeyError if that is not known here."""
        return self._infos[rank]

    def peer(self, rank: int) -> tuple[str, int, bool]:
        """Host, pid, and whether that pid can be watched from here."""
        info, own = self._infos[rank], self._infos[self._rank]
        if rank == self._rank:
            return info["host"], info["pid"], True
        visible = self.pids.get(rank, 0)
        if visible > 0:
            return info["host"], visible, True
        # The host's name as well: copies of a virtual machine may share what should be unique.
        same = info["pid_namespace"] == own["pid_namespace"] != "" and info["host"] == own["host"]
        return info["host"], info["pid"], same

    def name(self, rank: int) -> str:
        """For messages."""
        info = self._infos.get(rank)
        return f"rank {rank}" + (f" (host {info['host']}, pid {info['pid']})" if info else "")

    def address(self, rank: int) -> str:
        """For messages."""
        return " or ".join(f"{host}:{port}" for host, port in self.endpoints(rank))

    def endpoints(self, rank: int) -> list[tuple[str, int]]:
        """Where a rank is to be reached, best first."""
        if rank not in self._endpoints:
            published = [(str(host), int(port)) for host, port in self._infos[rank]["tcp"]]
            here = self.hosts[rank] == self.hosts[self._rank]
            self._endpoints[rank] = published if here else elsewhere(published)
        return self._endpoints[rank]
