"""MPI as a messenger: mpi4py, if it is there, brings rank 0's notice to the other ranks.

mpi4py initialises MPI when it is imported and finalises it when the process ends, so that is done only where
nothing simpler works. Messages have a tag of their own and every wait is a test, never a blocking call.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from horovod._bootstrap.notice import NOTICE_BYTES, Notice, decode
from horovod.common.exceptions import HorovodInternalError

_TAG = 18518
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02
_NAMED = 16  # ranks listed in a message


def load(must_be_loaded: bool = False) -> Any | None:
    """mpi4py's MPI module with MPI initialised; None if it can't be had.

    `must_be_loaded`: only if the program has it already, because under some launchers initialising MPI ends
    the process.
    """
    if must_be_loaded and "mpi4py.MPI" not in sys.modules:
        return None
    try:
        module: Any = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError, OSError):  # not installed, or without an MPI library
        return None
    return module if module.Is_initialized() and not module.Is_finalized() else None


def size() -> int | None:
    """The number of ranks according to MPI."""
    module = load()
    return None if module is None else int(module.COMM_WORLD.Get_size())


def name(module: Any) -> str:
    """The library that mpi4py has loaded, for messages."""
    return str(module.Get_library_version()).partition(",")[0].splitlines()[0].strip()


def fits(module: Any, rank: int, size: int) -> bool:
    """Whether MPI sees what the launcher tells; an MPI that isn't the launcher's sees a world of one."""
    world = module.COMM_WORLD
    return (int(world.Get_rank()), int(world.Get_size())) == (rank, size)


class MpiMessenger:
    """`ranks` are those of MPI's world that meet; the first one sends, until `deadline` (time.monotonic)."""

    def __init__(self, module: Any, ranks: Sequence[int], deadline: float) -> None:
        self._mpi = module
        self._ranks = ranks
        self._deadline = deadline
        self._buffer = bytearray(NOTICE_BYTES)
        self._request: Any = None

    def close(self) -> None:
        if self._request is not None:
            self._request.Cancel()
            self._request.Wait()  # of a cancelled request: does not block
            self._request = None

    @contextlib.contextmanager
    def offer(self, notice: Notice) -> Iterator[None]:
        content = notice.encode()
        world = self._mpi.COMM_WORLD
        # MPI moves data only while it is called, so this comes to an end before anything else is done.
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

    def look(self) -> Notice | None:
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
