"""Subsets of the ranks that run collectives of their own."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from horovod import _core
from horovod.common import session as sessions

_DYNAMIC_ONLY = (
    "process sets can be added and removed after hvd.init() only in dynamic mode: "
    'call hvd.init(process_sets="dynamic") or set HOROVOD_DYNAMIC_PROCESS_SETS=1'
)


class ProcessSet:
    """Ranks that communicate among themselves; usable once registered by hvd.init() or
    hvd.add_process_set().

    Compared by identity. `process_set_id` is None while it is not registered.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Any) -> None:
        if hasattr(ranks_or_comm, "Get_rank"):
            self.mpi_comm = ranks_or_comm
            return
        try:
            ranks = sorted(operator.index(rank) for rank in ranks_or_comm)
        except TypeError:
            raise ValueError(
                f"a process set is made from an iterable of ranks (ints), got {ranks_or_comm!r}"
            ) from None
        if len(set(ranks)) != len(ranks):
            raise ValueError(f"a process set has each rank once, got {ranks}")
        self.ranks = ranks

    def size(self) -> int | None:
        """Number of ranks in the set, None while it is not registered."""
        ranks = self._registered_ranks()
        return None if ranks is None else len(ranks)

    def rank(self) -> int | None:
        """This process's rank within the set, None while it is
        not registered; ValueError on a non-member."""
        ranks = self._registered_ranks()
        if ranks is None:
            return None
        own = sessions.for_query().place.rank
        if own not in ranks:
            raise ValueError(f"rank {own} is not in {self}")
        return ranks.index(own)

    def included(self) -> bool | None:
        """Whether this process is in the set, None if the ranks are not known."""
        return None if self.ranks is None else sessions.for_query().place.rank in self.ranks

    def __str__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"
        )

    __repr__ = __str__

    def _registered_ranks(self) -> list[int] | None:
        if self.process_set_id is None:
            return None
        ranks = sessions.for_query().engine.process_set_ranks(self.process_set_id)
        if ranks is None:
            raise ValueError(f"{self} is not known to the engine; it was removed")
        return ranks

    def _forget(self) -> None:
        self.process_set_id = None


class _GlobalProcessSet(ProcessSet):
    """All ranks. Its id never changes; its ranks are known while Horovod is initialised."""

    def __init__(self) -> None:
        self.process_set_id = 0

    def _forget(self) -> None:
        self.ranks = None


global_process_set: ProcessSet = _GlobalProcessSet()


def id_of(process_set: ProcessSet) -> int:
    """The id that the engine knows; ValueError if there is none."""
    number = process_set.process_set_id
    if number is None:
        remedy = "pass it to hvd.init() or hvd.add_process_set()"
        session = sessions.state.session
        if session is not None and session.elastic and max(process_set.ranks or [0]) >= session.place.size:
            remedy = (
                f"the present world of this elastic job has only {session.place.size} rank(s): with --min-np "
                f"{max(process_set.ranks or [0]) + 1} it waits for more"
            )
        raise ValueError(f"{process_set} is not registered; {remedy}")
    return number


def is_member(process_set: ProcessSet) -> bool:
    """Whether this rank is in the set, in the present world; ValueError if there is no such set now.

    In an elastic job that may be another answer in each world, as ranks are given anew.
    HorovodInternalError between two worlds: "no" would be taken for "train alone".
    """
    sessions.for_collective()
    id_of(process_set)
    return bool(process_set.included())


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Registers a set. A collective over all ranks: each calls it with the same ranks."""
    session = sessions.for_query()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.mpi_comm is not None:
        raise NotImplementedError(
            "a process set made from an MPI communicator can't be added after hvd.init()"
        )
    if not session.dynamic_process_sets:
        raise ValueError(_DYNAMIC_ONLY)
    check([process_set], session, allow_registered=False)
    _register(process_set, session)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set from the engine; the object can be added again. A collective over all ranks.

    False if there is nothing to remove: the set is not registered, or is the global one.
    """
    session = sessions.for_query()
    number = process_set.process_set_id
    if number is None or number == 0:
        return False
    if not session.dynamic_process_sets:
        raise ValueError(_DYNAMIC_ONLY)
    if session.engine.process_set_ranks(number) is None:
        return False
    session.run(_core.REMOVE_PROCESS_SET, b"remove_process_set", number)
    process_set._forget()
    # Identity: two objects may describe the same ranks.
    session.process_sets[:] = [known for known in session.process_sets if known is not process_set]
    return True


def check(process_sets: Sequence[ProcessSet], session: sessions.Session, *, allow_registered: bool) -> None:
    """ValueError if a set is empty, has an unknown rank, or equals another or the global one."""
    size = session.place.size
    registered = (
        {} if allow_registered else {tuple(ranks): number for number, ranks in _known(session).items()}
    )
    seen: set[tuple[int, ...]] = {tuple(range(size))}
    for process_set in process_sets:
        ranks = tuple(process_set.ranks or ())
        if not ranks or ranks[0] < 0 or ranks[-1] >= size:
            raise ValueError(f"{process_set} must have at least one rank, and ranks from 0 to {size - 1}")
        if ranks in seen or ranks in registered:
            raise ValueError(f"{process_set}: a process set with the same ranks exists already; use that one")
        seen.add(ranks)


def register_all(process_sets: Sequence[ProcessSet], session: sessions.Session) -> None:
    """What init() does: registers new sets on all ranks and gives known ones their id."""
    check(process_sets, session, allow_registered=True)
    ids = {tuple(ranks): number for number, ranks in _known(session).items()}
    for process_set in process_sets:
        number = ids.get(tuple(process_set.ranks or ()))
        if number is None:
            _register(process_set, session)
        else:
            process_set.process_set_id = number
            session.process_sets.append(process_set)


def _known(session: sessions.Session) -> dict[int, list[int]]:
    engine = session.engine
    return {number: engine.process_set_ranks(number) or [] for number in engine.process_set_ids()}


def _register(process_set: ProcessSet, session: sessions.Session) -> None:
    with session.adding:
        number = session.run(_core.ADD_PROCESS_SET, b"add_process_set", 0, process_set.ranks)
        if session.mesh is not None and session.mesh.missing(process_set.ranks or ()):
            from horovod.common import connections  # here: most jobs don't need it

            connections.add(session, session.mesh, number, process_set.ranks or ())
    process_set.process_set_id = number
    session.process_sets.append(process_set)
