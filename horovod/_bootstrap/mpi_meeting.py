"""How processes that an MPI launcher started find each other: rank 0 hosts the rendezvous, MPI tells where.

Plain messages on MPI.COMM_WORLD rather than a collective, so that waiting has a deadline and only the members
of a world need to take part.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from horovod._bootstrap.auth import KEY_BYTES
from horovod._bootstrap.identity import Identity
from horovod._bootstrap.server import RendezvousServer
from horovod.common.exceptions import HorovodInternalError

_TAG = 0x4857
_LOOK_SECONDS = 0.002


class _Post:
    """Short messages between ranks of MPI.COMM_WORLD, with a deadline."""

    def __init__(self, mpi: Any, timeout: float) -> None:
        self._mpi, self._comm = mpi, mpi.COMM_WORLD
        self._timeout, self._deadline = timeout, time.monotonic() + timeout

    def send(self, content: dict[str, Any], rank: int) -> None:
        text = json.dumps(content).encode()
        request = self._comm.Isend([text, self._mpi.BYTE], rank, _TAG)
        self._until(request.Test, lambda: [rank])

    def receive(self, ranks: Sequence[int]) -> dict[int, dict[str, Any]]:
        """One message from each of `ranks`."""
        found: dict[int, dict[str, Any]] = {}

        def look() -> bool:
            for rank in ranks:
                status = self._mpi.Status()
                message = None if rank in found else self._comm.Improbe(rank, _TAG, status)
                if message is not None:
                    content = bytearray(status.Get_count(self._mpi.BYTE))
                    message.Recv([content, self._mpi.BYTE])
                    found[rank] = json.loads(content)
            return len(found) == len(ranks)

        self._until(look, lambda: [rank for rank in ranks if rank not in found])
        return found

    def _until(self, condition: Callable[[], bool], missing: Callable[[], list[int]]) -> None:
        while not condition():
            if time.monotonic() > self._deadline:
                who = ", ".join(map(str, missing()))
                raise HorovodInternalError(
                    f"no answer from rank {who} of MPI.COMM_WORLD within {self._timeout:g} s: every rank "
                    "must call hvd.init(); allow more with HOROVOD_START_TIMEOUT"
                )
            time.sleep(_LOOK_SECONDS)


def meet(mpi: Any, members: Sequence[int], timeout: float) -> tuple[Identity, RendezvousServer | None]:
    """This process's place in the world of `members` (ranks of MPI.COMM_WORLD) and, on its rank 0, the server
    that the others will come to, which is the caller's to stop.

    Raises HorovodInternalError naming who is missing after `timeout` seconds.
    """
    own = mpi.COMM_WORLD.Get_rank()
    host = mpi.Get_processor_name()
    post = _Post(mpi, timeout)
    server: RendezvousServer | None = None
    if own == members[0]:
        answers = post.receive(members[1:])
        hosts = [host, *(answers[rank]["host"] for rank in members[1:])]
        key = secrets.token_bytes(KEY_BYTES)
        server = RendezvousServer(key, "127.0.0.1" if len(set(hosts)) == 1 else _address(host)).start()
        content: dict[str, Any] = {"endpoint": server.endpoints[0], "key": key.hex(), "hosts": hosts}
        for rank in members[1:]:
            post.send(content, rank)
    else:
        post.send({"host": host}, members[0])
        content = post.receive(members[:1])[members[0]]
    address, port = content["endpoint"]
    rank, hosts = list(members).index(own), content["hosts"]
    local = [other for other, name in enumerate(hosts) if name == host]
    return (
        Identity(
            rank=rank,
            size=len(members),
            local_rank=local.index(rank),
            local_size=len(local),
            cross_rank=0,  # found out from the hosts once connected
            cross_size=1,
            host=host,
            rendezvous=(address, port),
            key=bytes.fromhex(content["key"]),
        ),
        server,
    )


def _address(host: str) -> str:
    """Where other hosts reach this one: what its name stands for, unless that is the loopback interface."""
    try:
        found = socket.gethostbyname(host)
    except OSError:
        found = "127.0.0.1"
    if not found.startswith("127."):
        return found
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family == socket.AF_INET and not entry.address.startswith("127."):
                return str(entry.address)
    raise HorovodInternalError(f"host {host} has no network address besides loopback")
