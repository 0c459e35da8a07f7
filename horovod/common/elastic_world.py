"""The worker's part in an elastic job: from one world to the next, and what the launcher is told.

The first hvd.init() makes the worker known; from then on each enlists at the launcher, waits for an
assignment and connects what it says. Loaded in elastic jobs only.
"""

from __future__ import annotations

import contextlib
import hmac
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from horovod._bootstrap import identity as identities
from horovod._bootstrap.elastic_worker import ElasticWorker
from horovod._bootstrap.enlist import Application, Assignment, ConnectionLost, LauncherGone, Removed, enlist
from horovod._bootstrap.identity.variables import RANK, START_RANK, WORKER
from horovod._bootstrap.notices import NoticeClient
from horovod._bootstrap.rendezvous.enlistment import scope_of
from horovod._net.frames import Message
from horovod.common import durable, preemption
from horovod.common.process_sets import ProcessSet
from horovod.common.session import Session, state
from horovod.errors import HorovodInternalError

if TYPE_CHECKING:
    from horovod._bootstrap.identity import Identity
    from horovod._bootstrap.rendezvous.client import RendezvousClient
    from horovod._core import Culprit
    from horovod.common.config import Config

Listener = Callable[[int, int, float | None], None]  # sequence, HostUpdateResult, seconds left
Connect = Callable[["Identity", "RendezvousClient", str], Session]

_COMMIT_SECONDS = 1.0  # at least, between two commits that are told or kept

__all__ = [
    "Disk",
    "LauncherGone",
    "Progress",
    "RemovedFromJob",
    "assignment",
    "disk",
    "enabled",
    "progress",
    "report",
    "restart",
    "subscribe",
    "unsubscribe",
]


class RemovedFromJob(SystemExit):
    """This worker is not in the new world. Ends the process with code 0 unless it is caught."""

    def __init__(self, text: str) -> None:
        super().__init__(0)
        self.text = text

    def __str__(self) -> str:
        return self.text


@dataclass
class Progress:
    """How far the user's state has come: the number of its last commit (-1: there is none), and
    whether it was set back to that since the last enlistment.
    """

    commit: int = -1
    rolled_back: bool = False


progress = Progress()


@dataclass
class Disk:
    """The directory of durable commits, and which of them go there."""

    directory: Path
    job: str
    every: int
    written: float = -math.inf  # when the last one was

    def wants(self, number: int) -> bool:
        """Whether this commit is to be kept."""
        return number % self.every == 0 and time.monotonic() >= self.written + _COMMIT_SECONDS

    def write(self, number: int, content: bytes) -> None:
        """Keeps it; OSError."""
        durable.write(self.directory, self.job, number, content)
        self.written = time.monotonic()

    def newest(self) -> tuple[int, bytes]:
        """The last one of this job; CommitError."""
        return durable.newest(self.directory, self.job)


def job_of(key: bytes) -> str:
    """A name for the job that tells nothing of its key."""
    return hmac.digest(key, b"horovod durable commits", "sha256")[:8].hex()


class _Notices:
    """What the launcher has said about hosts, for those who want to hear it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._kept: list[tuple[int, int, float | None]] = []  # sequence, result, when time is up
        self._newest = -1
        self._listeners: list[Listener] = []

    def on_message(self, message: Message) -> None:
        if message.get("type") == "ending":
            preemption.job_is_ending()
        if message.get("type") == "ping":
            report({"type": "pong"})
        if message.get("type") != "hosts_updated":
            return
        left = message.get("deadline")
        at = None if left is None else time.monotonic() + float(left)
        with self._lock:
            sequence = int(message["sequence"])
            if sequence <= self._newest:
                return  # said again after the connection was lost
            self._newest = sequence
            self._kept.append((sequence, int(message["result"]), at))
            for listener in list(self._listeners):
                self._tell(listener, self._kept[-1])

    def dealt_with(self, sequence: int) -> None:
        """The present world takes everything up to `sequence` into account."""
        with self._lock:
            self._newest = max(self._newest, sequence)
            self._kept = [each for each in self._kept if each[0] > sequence]

    def subscribe(self, listener: Listener) -> None:
        with self._lock:
            if listener not in self._listeners:
                self._listeners.append(listener)
            for notice in self._kept:
                self._tell(listener, notice)

    def unsubscribe(self, listener: Listener) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    def _tell(self, listener: Listener, notice: tuple[int, int, float | None]) -> None:
        sequence, result, at = notice
        listener(sequence, result, None if at is None else max(0.0, at - time.monotonic()))

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._listeners.clear()


class _Worker:
    """What this process knows from one world to the next."""

    def __init__(self) -> None:
        self.me: ElasticWorker | None = None
        self.client: NoticeClient | None = None
        self.assignment: Assignment | None = None
        self.generation = 0  # the last world that stood
        self.culprit: Culprit | None = None  # whom the engine of that world has accused
        self.why = "it has just started"
        self.disk: Disk | None = None
        self.reported = -math.inf  # when the last commit was
        self.process_sets: Sequence[ProcessSet] | str | None = None  # of the first init()


_notices = _Notices()
_worker = _Worker()


def enabled() -> bool:
    """Whether this process is a worker of an elastic job."""
    return bool(os.environ.get(WORKER)) and os.environ.get("HOROVOD_ELASTIC", "") not in ("", "0")


def restart(why: str) -> None:
    """shutdown() and init() with the arguments of the first init(), in the next world.

    Without an elastic launcher the same ranks meet again. Raises RemovedFromJob if this worker is
    not in the next world.
    """
    from horovod.common import startup

    startup.stop()
    _worker.why = why
    startup.start(None, _worker.process_sets)


def assignment() -> Assignment | None:
    """The place in the present world; None without one, or outside of elastic jobs."""
    return _worker.assignment if state.session is not None else None


def subscribe(listener: Listener) -> None:
    """Calls `listener` for each notice that the present world does not take into account yet, from
    another thread; at once for those that have come before.
    """
    _notices.subscribe(listener)


def unsubscribe(listener: Listener) -> None:
    """No more notices for it."""
    _notices.unsubscribe(listener)


def report(message: Message) -> None:
    """Tells the launcher, as far as that is possible; never blocks and never raises.

    Of commits at most one a second: the others it hears of at the next enlistment.
    """
    if _worker.client is None:
        return
    if message.get("type") == "commit":
        now = time.monotonic()
        if now < _worker.reported + _COMMIT_SECONDS:
            return
        _worker.reported = now
    _worker.client.send(message)


def disk() -> Disk | None:
    """Where commits are kept on disk, if they are to be."""
    return _worker.disk


# For startup.py


def first_arguments(
    process_sets: Sequence[ProcessSet] | str | None,
) -> Sequence[ProcessSet] | str | None:
    """The process sets of the first init(), also for later calls that name none."""
    if _worker.process_sets is None:
        _worker.process_sets = process_sets
    return _worker.process_sets if process_sets is None else process_sets


def check(config: Config, comm: object) -> None:
    """ValueError for what can't be had in a job whose ranks change."""
    if comm is not None:
        raise ValueError("hvd.init(comm=...) is not possible in an elastic job: its ranks change")
    if config.topology is not None:
        raise ValueError("HOROVOD_TOPOLOGY is not possible in an elastic job: its ranks change; unset it")
    if config.cpu_operations == "mpi" or config.controller == "mpi":
        raise ValueError("MPI is not possible in an elastic job: its worlds don't change; use --gloo")


def begin(config: Config, connect: Connect) -> Session:
    """Enlists and connects, again and again until a world stands."""
    me = _introduce(config)
    while True:
        client, place = _enlist(me, config)
        began = time.monotonic()
        try:
            session = connect(place.identity(me), client, scope_of(place.generation))
        except HorovodInternalError as error:
            # Not this worker's failure: the launcher finds out whose, and makes another world.
            _worker.why = f"generation {place.generation} was not connected: {error}"
            continue
        finally:
            client.close()
        break
    _worker.generation, _worker.assignment = place.generation, place
    _worker.culprit, _worker.why = None, ""
    os.environ.update(place.variables())
    seconds = time.monotonic() - began
    report({"type": "timing", "generation": place.generation, "stage": "connect", "seconds": seconds})
    return session


def ended(culprit: Culprit | None) -> None:
    """The session of the last world has ended; its engine has accused this rank."""
    _worker.culprit = culprit
    _worker.assignment = None


def _introduce(config: Config) -> ElasticWorker:
    if _worker.me is None:
        me = ElasticWorker.detect(identities.environment())
        assert me is not None  # enabled()
        os.environ.setdefault(START_RANK, os.environ.get(RANK, "0"))
        _worker.me = me
        _worker.client = NoticeClient(me, _notices.on_message)
        state.on_fork.append(_after_fork_in_child)
        preemption.install(_worker.client, config.preemption_grace)
        if config.commit_dir is not None:
            _worker.disk = Disk(Path(config.commit_dir), job_of(me.key), config.commit_every)
    return _worker.me


def _enlist(me: ElasticWorker, config: Config) -> tuple[RendezvousClient, Assignment]:
    application = Application(
        generation=_worker.generation,
        commit=progress.commit,
        rolled_back=progress.rolled_back,
        culprit=None if _worker.culprit is None else _worker.culprit.rank,
        silent=_worker.culprit is not None and _worker.culprit.silent,
        why=_worker.why,
    )
    patience = config.peer_timeout_seconds, config.elastic_timeout
    try:
        try:
            client, place = enlist(me, application, *patience)
        except ConnectionLost:  # this process was stopped, or the link failed: it comes again
            client, place = enlist(me, application, *patience)
    except Removed as removed:
        import logging  # here: it would take a tenth of the time of importing this module

        text = f"{me} has been removed from elastic job"
        logging.getLogger("horovod").info("%s: %s", text, removed)
        raise RemovedFromJob(text) from None
    progress.rolled_back = False
    _notices.dealt_with(place.sequence)
    return client, place


def _after_fork_in_child() -> None:
    if _worker.client is not None:
        _worker.client.after_fork_in_child()
    _worker.client = None
    _notices.after_fork_in_child()
    preemption.after_fork_in_child()
