"""Rank 0's endpoint in a message of MPI.

Messages have a tag of their own and every wait is a test, never a blocking call.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from horovod._bootstrap.discovery.endpoint import MAX_BYTES, RendezvousEndpoint, decode
from horovod.errors import HorovodInternalError

_TAG = 18518
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02
_NAMED = 16  # ranks listed in a message


class MpiMessage:
    """`ranks` of MPI's world meet; the first one sends, until `deadline` (time.monotonic)."""

    def __init__(self, module: Any, ranks: Sequence[int], deadline: float) -> None:
        self._mpi = module
        self._ranks = ranks
        self._deadline = deadline
        self._buffer = bytearray(MAX_BYTES)
        self._request: Any = None

    def close(self) -> None:
        if self._request is not None:
            self._request.Cancel()
            self._request.Wait()  # of a cancelled request: does not block
            self._request = None

    @contextlib.contextmanager
    def publish(self, endpoint: RendezvousEndpoint) -> Iterator[None]:
        content = endpoint.encode()
        world = self._mpi.COMM_WORLD
        # MPI moves data only while it is called, so this comes to an end before anything else is
        # done.
        requests = {rank: world.Isend([content, self._mpi.BYTE], rank, _TAG) for rank in self._ranks[1:]}
        pause = _FIRST_PAUSE
        while requests := {rank: each for rank, each in requests.items() if not each.Test()}:
            if time.monotonic() >= self._deadline:
                missing = ", ".join(f"rank {rank}" for rank in list(requests)[:_NAMED])
                raise HorovodInternalError(
                    f"rank {self._ranks[0]} waits in hvd.init() and could not reach by MPI in time: {missing}"
                    f"{' and more' if len(requests) > _NAMED else ''}; see their output"
                )
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)
        yield

    def poll(self) -> RendezvousEndpoint | None:
        mpi = self._mpi
        if self._request is None:
            self._request = mpi.COMM_WORLD.Irecv([self._buffer, mpi.BYTE], self._ranks[0], _TAG)
        status = mpi.Status()
        if not self._request.Test(status):
            return None
        self._request = None
        return decode(bytes(self._buffer[: status.Get_count(mpi.BYTE)]))

    def waiting_for(self) -> str:
        return "its message has not come through MPI"
