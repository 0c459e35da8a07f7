"""The one initialised engine of this process and what belongs to it."""

from __future__ import annotations

import contextlib
import hmac
import os
import shlex
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from horovod import _core
from horovod._bootstrap import identity
from horovod.common.seals import Seals
from horovod.errors import HorovodInternalError

if TYPE_CHECKING:
    from horovod._bootstrap.world.mesh import Mesh
    from horovod.common.feed import Feed, NoFeed
    from horovod.common.observer import Observer
    from horovod.common.process_sets import ProcessSet
    from horovod.common.tuning import Tuning

COLLECTED = "_HOROVOD_TIMELINE_COLLECTED"  # set by horovodrun if it makes one file of all ranks' parts
NOT_INITIALIZED = "Horovod has not been initialized; call hvd.init() first."


def engine_error(code: int, text: str) -> Exception:
    """A caller's own mistake is a ValueError; everything that other ranks are part of is not."""
    if code == _core.INVALID_ARGUMENT:
        return ValueError(text)
    error = HorovodInternalError(text)
    error.code = code
    return error


@dataclass(frozen=True)
class Place(identity.Place):
    """Where this process stands among the ranks and hosts."""

    homogeneous: bool


class Session:
    """What exists between init() and shutdown()."""

    def __init__(
        self,
        engine: _core.Engine,
        place: Place,
        *,
        observer: Observer,
        tuning: Tuning | None,
        feed: Feed | NoFeed,
        dynamic_process_sets: bool,
        timeline: bool,
        timeline_of_all: bool,
        elastic: bool,
        transport: str,
        mpi: bool,
        belongings: contextlib.ExitStack,
        key: bytes,
        mesh: Mesh | None,
    ) -> None:
        self.engine = engine
        self.observer = observer
        self.tuning = tuning  # rank 0, if it was asked for
        self.feed = feed
        self.transport = transport
        self.mpi = mpi  # whether it carries the data
        self.belongings = belongings  # what ends after the engine
        self.place = place
        self.dynamic_process_sets = dynamic_process_sets
        self.timeline = timeline
        self.timeline_of_all = timeline_of_all  # every rank records
        self._recorded: str | None = None  # the timeline whose parts nobody collects, while it is recorded
        self.elastic = elastic  # the number of ranks may change
        self.process_sets: list[ProcessSet] = []
        self.adding = threading.Lock()  # a process set, or the connections that it needs
        self.mesh = mesh  # of several hosts
        self.joins = 0  # how often all ranks have called join()
        self._key = key  # of this world
        self.seals = Seals(self.derived_key("objects"), place.rank)

    def timeline_started(self, path: str) -> None:
        """The engine records to this path."""
        if path != self._recorded:
            self.tell_of_parts()
        # An elastic job is always horovodrun's, which collects those of the one that it was told to make.
        collected = self.elastic or (COLLECTED in os.environ and path == os.environ.get("HOROVOD_TIMELINE"))
        if self.timeline_of_all and not collected:
            self._recorded = path

    def tell_of_parts(self) -> None:
        """A recording is over. Where no launcher collects its parts, rank 0 says what to do with them."""
        path, self._recorded = self._recorded, None
        if path is None or self.place.rank != 0:
            return
        base, extension = os.path.splitext(path)
        words = ["python", "-m", "horovod.timeline", "merge", path, "-o", f"{base}.all{extension}"]
        where = "" if self.place.cross_size == 1 else ", on its own host"
        text = f"each rank's part of the timeline is beside {path}{where}; to join them: {shlex.join(words)}"
        print(f"horovod: {text}", file=sys.stderr, flush=True)

    def derived_key(self, purpose: str) -> bytes:
        """A key that only the ranks of this world know, for one purpose."""
        return hmac.digest(self._key, purpose.encode(), "sha256")

    def run(self, kind: int, name: bytes, process_set: int, numbers: Sequence[int] | None = None) -> int:
        """Runs an operation that has no tensors to its end and returns the number it gives."""
        engine = self.engine
        handle = engine.submit(kind, name, process_set, numbers=numbers)
        code = engine.wait(handle)
        try:
            if code < 0:
                raise engine.failure(handle, code)
            return engine.result(handle)
        finally:
            engine.release(handle)


class _State:
    """The process's session, if any, and the history that init() needs."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.lock = threading.RLock()
        self.inits: dict[str, int] = {}
        self.on_fork: list[Callable[[], None]] = []
        self.after_init: list[Callable[[], None]] = []  # what adapters have to do in a new session
        self.before_shutdown: list[Callable[[], None]] = []  # what adapters still have to wait for
        # In an elastic job: lets go of the engine that has ended
        self.after_shutdown: list[Callable[[], None]] = []

    def after_fork_in_child(self) -> None:
        # The engine's threads are not here, and another thread may have held the lock.
        self.lock = threading.RLock()
        session, self.session = self.session, None
        if session is not None:
            session.engine.after_fork_in_child()
            for process_set in session.process_sets:
                process_set._forget()
        _core.leave_engines_to_parent()
        for forget in self.on_fork:
            forget()


state = _State()
os.register_at_fork(after_in_child=state.after_fork_in_child)


def for_collective() -> Session:
    """The session, for operations (HorovodInternalError without)."""
    session = state.session
    if session is None:
        raise HorovodInternalError(NOT_INITIALIZED)
    return session


def for_query() -> Session:
    """The session, for questions such as rank() (ValueError without)."""
    session = state.session
    if session is None:
        raise ValueError(NOT_INITIALIZED)
    return session
