"""MPI, when it carries the data: everything that is asked of mpi4py.

Imported only by jobs that use MPI.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
from collections.abc import Sequence
from typing import Any

from horovod._core import MpiTable

_TAG = 0x4856  # of the one message exchange that is not on a communicator of our own; below every MPI_TAG_UB
_forked = False  # this process is the child of one that had loaded MPI
_REMEDY = "install mpi4py next to the MPI of the launcher (pip install 'horovod[mpi]')"


def library() -> Any:
    """mpi4py.MPI, initialised for several threads.

    ValueError with the remedy if that can't be had.
    """
    if _forked:
        raise ValueError("MPI can't be used in a forked process: start it with multiprocessing's 'spawn'")
    try:
        mpi: Any = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:  # no mpi4py; no libmpi
        raise ValueError(f"MPI can't be used: {error}; {_REMEDY}") from error
    if mpi.Is_finalized():
        raise ValueError("MPI can't be used: MPI_Finalize has been called; call hvd.init() before it")
    level = mpi.Query_thread() if mpi.Is_initialized() else mpi.Init_thread(mpi.THREAD_MULTIPLE)
    if level < mpi.THREAD_MULTIPLE:
        raise ValueError(
            "Horovod needs MPI_THREAD_MULTIPLE, but MPI was initialised with less: leave mpi4py.rc.threads "
            "and mpi4py.rc.thread_level as they are, and use an MPI library that supports it"
        )
    return mpi


def _in_child() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_in_child)


def world_ranks(comm: Any) -> list[int]:
    """The ranks of MPI.COMM_WORLD that `comm` consists of, in its order.

    ValueError if it can't be used.
    """
    mpi = library()
    if not isinstance(comm, mpi.Comm):
        raise ValueError(
            f"hvd.init(comm=...) takes None, a list of ranks or an mpi4py.MPI.Comm, got {comm!r}"
        )
    if comm == mpi.COMM_NULL:
        raise ValueError("hvd.init(comm=MPI.COMM_NULL): this process is not in that communicator")
    if comm.Is_inter():
        raise ValueError("hvd.init(comm=...) takes an intracommunicator, got one between two groups")
    return _translated(mpi, comm)


def set_ranks(comm: Any, members: Sequence[int]) -> list[int]:
    """The Horovod ranks that the communicator of a process set consists of, sorted; none for
    MPI.COMM_NULL.

    `members` are the ranks of MPI.COMM_WORLD that are Horovod's, in order.
    """
    mpi = library()
    if comm == mpi.COMM_NULL:
        return []
    ranks = _translated(mpi, comm)
    if outside := [rank for rank in ranks if rank not in members]:
        raise ValueError(
            f"hvd.init(process_sets=...): a set's communicator has rank {outside[0]} of MPI.COMM_WORLD in "
            "it, which hvd.init(comm=...) leaves out"
        )
    return sorted(members.index(rank) for rank in ranks)


def _translated(mpi: Any, comm: Any) -> list[int]:
    ranks: list[int] = mpi.Group.Translate_ranks(
        comm.Get_group(), list(range(comm.Get_size())), mpi.COMM_WORLD.Get_group()
    )
    if mpi.UNDEFINED in ranks:
        raise ValueError("a communicator for Horovod may only have processes of MPI.COMM_WORLD in it")
    return ranks


class Channel:
    """A communicator of the engine's own: nobody else's messages can get into it.

    `members` are ranks of MPI.COMM_WORLD, in the order of the world that they form; all of them
    create the channel, when they know that the others are about to (MPI gives no deadline for
    this).
    """

    def __init__(self, members: Sequence[int]) -> None:
        self._mpi = mpi = library()
        group = mpi.COMM_WORLD.Get_group().Incl(list(members))
        self._comm: Any = mpi.COMM_WORLD.Create_group(group, _TAG)
        group.Free()
        # A failure is the engine's to report; MPI's default would be to end the process.
        self._comm.Set_errhandler(mpi.ERRORS_RETURN)

    def table(self) -> MpiTable:
        """What the core needs."""
        mpi = self._mpi
        # The functions of the MPI that mpi4py is linked to, wherever it was found.
        functions = ctypes.CDLL(mpi.__file__)

        def address(name: str) -> int:
            return ctypes.cast(getattr(functions, name), ctypes.c_void_p).value or 0

        return MpiTable(
            mpi._sizeof(mpi.Comm),
            mpi._handleof(self._comm),
            mpi._handleof(mpi.BYTE),
            *(address(name) for name in ("MPI_Isend", "MPI_Irecv", "MPI_Test", "MPI_Error_string")),
        )

    def close(self) -> None:
        """After the engine has ended. MPI's implementations do this without the other ranks."""
        if self._comm is not None and not self._mpi.Is_finalized():
            with contextlib.suppress(self._mpi.Exception):
                self._comm.Free()
        self._comm = None
