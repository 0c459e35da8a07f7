"""Elastic training: the state that survives a change of the ranks, and the loop around a training function.

What a framework adds to it is in its own `elastic` module, which also has these names.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
import queue
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from horovod import _core
from horovod._bootstrap.host_update import HostUpdateResult
from horovod.common import elastic_world
from horovod.common.arrays import collectives
from horovod.common.handles import table
from horovod.common.objects import broadcast_object
from horovod.common.process_sets import global_process_set
from horovod.common.session import state as _process
from horovod.errors import HorovodInternalError, HostsUpdatedInterrupt

__all__ = ["ObjectState", "State", "notification_manager", "run", "run_fn", "source_rank"]

_A_RANK = re.compile(r"\branks? \d")

P = ParamSpec("P")
R = TypeVar("R")
Translate = Callable[[], contextlib.AbstractContextManager[None]]


def source_rank() -> int:
    """The rank whose values all others get in `sync()`: one that has the newest commit."""
    assignment = elastic_world.assignment()
    return 0 if assignment is None else assignment.source


def _from_source(bcast_object: Callable[..., Any], value: Any, *args: Any, **kwargs: Any) -> Any:
    """bcast_object() from the rank that has the newest commit: rank 0 may have joined just now."""
    source = source_rank()
    if source == 0 or args or kwargs:
        return bcast_object(value, *args, **kwargs)
    return broadcast_object(value, source)


def _dealt_with() -> int:
    """The number of the last notice that led to the present world."""
    assignment = elastic_world.assignment()
    return 0 if assignment is None else assignment.sequence


class State:
    """What has to be the same on all ranks while these come and go.

    Derive from it, or use `ObjectState` or that of your framework. `save`, `restore` and `sync` say
    what the state consists of.
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        """`bcast_object`: hvd.broadcast_object, `get_rank`: hvd.rank."""
        # For sync(), also that of a class of the user's own.
        self._bcast_object = functools.partial(_from_source, bcast_object)
        self._rank = get_rank
        self._host_messages: queue.Queue[tuple[int, HostUpdateResult]] = queue.Queue()
        self._last_updated_timestamp = 0
        self._reset_callbacks: list[Callable[[], None]] = []
        # The number of the commit that is saved; -1 while this process has got no values from the others.
        self._commits = -1
        self._saved_now = False  # what is saved is what was reached

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Adds functions that are called after the ranks have changed, in this order, before `sync()`.

        They may ask for hvd.size() and run collectives. Not called in processes that are new.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called when a new world stands: drops old notices, calls `reset()` and the callbacks."""
        waiting, self._host_messages = self._host_messages, queue.Queue()
        with contextlib.suppress(queue.Empty):
            while True:
                timestamp, result = waiting.get_nowait()
                # One that came in the meantime may be about a change after this one.
                if elastic_world.assignment() is not None and timestamp > _dealt_with():
                    self._host_messages.put((timestamp, result))
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: int, update_res: HostUpdateResult) -> None:
        """Called from another thread when hosts come or go; `timestamp` grows with every notice."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves, then looks whether hosts have come or gone. A collective: each rank calls it as often."""
        self.save()
        self._count_commit()
        self._saved_now = True
        self.check_host_updates()
        self._saved_now = False

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks, or on none. A collective."""
        newest, added, removed = self._agreed(self._own_notices())
        if newest > 0:
            self._last_updated_timestamp = max(newest, self._last_updated_timestamp)
            raise HostsUpdatedInterrupt(skip_sync=removed > 0 and added == 0)

    def save(self) -> None:
        """Copies the values to host memory. Local."""
        raise NotImplementedError(f"{type(self).__name__} must define save()")

    def restore(self) -> None:
        """Takes back all changes since the last save. Local."""
        raise NotImplementedError(f"{type(self).__name__} must define restore()")

    def sync(self) -> None:
        """Gives all ranks the values of rank `source_rank()`, and saves them. A collective."""
        raise NotImplementedError(f"{type(self).__name__} must define sync()")

    def reset(self) -> None:
        """What else is to be done when the ranks have changed, before `sync()`; nothing by default."""

    def _count_commit(self) -> None:
        if self._commits >= 0:
            self._commits += 1
            _tell_commit(self._commits)
            self._keep_on_disk()

    def _keep_on_disk(self) -> None:
        disk = elastic_world.disk()
        if disk is None or not disk.wants(self._commits) or self._rank() != source_rank():
            return
        try:
            disk.write(self._commits, self._durable())
        except OSError as error:
            import logging

            # A full disk is no reason to end a training whose ranks live.
            logging.getLogger("horovod").warning("commit %d was not kept: %s", self._commits, error)

    def _load_from_disk(self) -> None:
        """Nobody has the state any more: this rank takes it from the last commit on disk."""
        disk = elastic_world.disk()
        if disk is not None:
            self._commits, content = disk.newest()
            self._load_durable(content)

    def _durable(self) -> bytes:
        """What was saved, for a file."""
        raise NotImplementedError(f"{type(self).__name__} has no commits on disk: leave out --commit-dir")

    def _load_durable(self, content: bytes) -> None:
        """Takes what _durable() has given, as if it had been saved here."""
        raise NotImplementedError(f"{type(self).__name__} has no commits on disk: leave out --commit-dir")

    def _own_notices(self) -> Sequence[int]:
        """The number of the newest notice that was not acted upon, and of the newest of each kind."""
        newest = added = removed = 0
        least = max(self._last_updated_timestamp, _dealt_with())
        with contextlib.suppress(queue.Empty):
            while True:
                timestamp, result = self._host_messages.get_nowait()
                if timestamp > least:
                    newest = max(newest, timestamp)
                    added = max(added, timestamp) if result & HostUpdateResult.added else added
                    removed = max(removed, timestamp) if result & HostUpdateResult.removed else removed
        return newest, added, removed

    @staticmethod
    def _agreed(numbers: Sequence[int]) -> Sequence[int]:
        session = _process.session
        if session is None or session.place.size == 1:
            return numbers
        array = np.array(numbers, np.int64)
        handle = collectives.allreduce(
            [array], "horovod.elastic.notices", _core.MAX, 1.0, 1.0, global_process_set
        )
        result: list[int] = table.synchronize(handle).tolist()
        return result


class ObjectState(State):
    """A state of Python objects, one attribute for each keyword: they are copied and pickled."""

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        """`kwargs`: attributes and their first values. What else is set later is not part of the state."""
        super().__init__(bcast_object, get_rank)
        for name in kwargs:
            if hasattr(type(self), name):
                raise ValueError(
                    f"{type(self).__name__} has a member {name!r}: give the attribute another name"
                )
        self._saved_state: dict[str, Any] = kwargs
        self._set_attributes(kwargs)
        self._saved_state = self._copied_attributes()

    def save(self) -> None:
        """Copies the attributes."""
        self._saved_state = self._copied_attributes()

    def restore(self) -> None:
        """Gives the attributes the values that were saved."""
        self._set_attributes(copy.deepcopy(self._saved_state))

    def _durable(self) -> bytes:
        own = type(self)
        if own.save is not ObjectState.save and own._durable is ObjectState._durable:
            return super()._durable()  # it saves more than is known here
        return pickle.dumps(self._saved_state)

    def _load_durable(self, content: bytes) -> None:
        self._saved_state = pickle.loads(content)  # the user's own file, see durable.py
        self.restore()

    def sync(self) -> None:
        """Gives all ranks the attributes of rank `source_rank()`, and saves them. A collective."""
        self._sync_attributes()
        self.save()

    def _sync_attributes(self) -> None:
        own = {name: getattr(self, name) for name in self._saved_state}
        if not own:
            return
        source = source_rank()
        received = self._bcast_object(own)
        if self._rank() == source:
            return
        if received.keys() != own.keys():
            raise ValueError(
                f"the state of rank {source} has the attributes {sorted(received)}, that of rank "
                f"{self._rank()} has {sorted(own)}: start all ranks with the same program"
            )
        self._set_attributes(received)

    def _copied_attributes(self) -> dict[str, Any]:
        copies: dict[str, Any] = {}
        for name in self._saved_state:
            try:
                copies[name] = copy.deepcopy(getattr(self, name))
            except TypeError as error:
                raise TypeError(
                    f"the attribute {name!r} of the state can't be copied ({error}): keep in the state only "
                    "what can, and make the rest anew in the training function"
                ) from error
        return copies

    def _set_attributes(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


class _NotificationManager:
    """Hands the launcher's notices to the states that are in use."""

    def __init__(self) -> None:
        self._listeners: list[Any] = []
        self._elastic = False

    def init(self) -> None:
        """Finds out whether the job is elastic: only then there are notices."""
        self._elastic = elastic_world.enabled()

    def register_listener(self, listener: Any) -> None:
        """Notices go to `listener.on_hosts_updated(number, result)`; those that nobody has heard, at once."""
        self._listeners.append(listener)
        if self._elastic:
            elastic_world.subscribe(self._on_notice)

    def remove_listener(self, listener: Any) -> None:
        """The opposite."""
        self._listeners = [each for each in self._listeners if each is not listener]

    def handle_hosts_updated(self, timestamp: int, update_res: HostUpdateResult) -> None:
        """Tells all listeners."""
        for listener in list(self._listeners):
            listener.on_hosts_updated(timestamp, update_res)

    def _on_notice(self, sequence: int, result: int, seconds_left: float | None) -> None:
        if sequence > _dealt_with():
            self.handle_hosts_updated(sequence, HostUpdateResult(result))


notification_manager = _NotificationManager()


def run(func: Callable[P, R], translate: Translate = contextlib.nullcontext) -> Callable[P, R]:
    """Makes a training function one that goes on when ranks come, go or fail.

    Its first argument is the state. It is called again, with the state of the last commit, in each
    world; what it returns is the result. `translate` is a context that turns errors of a framework
    into ours.
    """
    return _wrapped(func, elastic_world.restart, translate)


def run_fn(func: Callable[P, R], reset: Callable[[], None]) -> Callable[P, R]:
    """`run()` with a function of your own that leaves the old world and joins the next."""
    return _wrapped(func, lambda why: reset(), contextlib.nullcontext)


def _wrapped(func: Callable[P, R], restart: Callable[[str], None], translate: Translate) -> Callable[P, R]:
    @functools.wraps(func)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        if not args:
            raise TypeError(f"{func.__name__}() needs the state as its first argument")
        state: Any = args[0]
        notification_manager.init()
        notification_manager.register_listener(state)
        try:
            return _Rounds(state, restart, translate).run(lambda: func(*args, **kwargs))
        finally:
            notification_manager.remove_listener(state)

    return wrapper


class _Rounds:
    """The worlds that one call of a training function lives through."""

    def __init__(self, state: Any, restart: Callable[[str], None], translate: Translate) -> None:
        self._state = state
        self._restart = restart
        self._translate = translate
        self._must_sync = True
        self._changed = False  # since the last save or restore, perhaps

    def run(self, call: Callable[[], R]) -> R:
        why: str | None = None
        while True:
            try:
                with self._translate():
                    if why is not None:
                        self._enter_next_world(why)
                    self._sync()
                    return call()
            except HorovodInternalError as error:
                if self._no_other_world():
                    raise
                self._roll_back()
                why = _cause(str(error))
            except HostsUpdatedInterrupt as interrupt:
                self._keep()
                self._must_sync = not interrupt.skip_sync
                why = str(interrupt)

    def _enter_next_world(self, why: str) -> None:
        self._restart(why)
        assignment = elastic_world.assignment()
        if assignment is not None:
            self._must_sync = assignment.sync  # all ranks decide alike, also those that are new
        self._changed = True  # callbacks may do anything
        self._state.on_reset()

    def _sync(self) -> None:
        self._changed = True
        if not self._must_sync:
            return
        start = time.monotonic()
        assignment = elastic_world.assignment()
        if assignment is not None and assignment.load and assignment.rank == assignment.source:
            self._state._load_from_disk()
        commits = _commits_of_source(getattr(self._state, "_commits", -1))
        self._state.sync()
        # Not before: what has been received in part is no state.
        self._state._commits = commits
        _tell_commit(commits)
        _tell_time("sync", time.monotonic() - start)
        self._must_sync = False

    def _roll_back(self) -> None:
        """After an error. Without a world since the last one there is nothing to take back."""
        self._must_sync = True
        self._state._saved_now = False
        if not self._changed:
            return
        start = time.monotonic()
        self._state.restore()
        self._changed = False
        elastic_world.progress.rolled_back = True
        _tell_time("restore", time.monotonic() - start)

    def _keep(self) -> None:
        """After an interrupt: what was reached stays, also if it was not committed."""
        if not getattr(self._state, "_saved_now", False):
            self._state.save()
            if isinstance(self._state, State):
                self._state._count_commit()
        self._state._saved_now = False
        self._changed = False

    @staticmethod
    def _no_other_world() -> bool:
        session = _process.session
        return not elastic_world.enabled() and session is not None and session.place.size > 1


def _cause(text: str) -> str:
    """The line that says who failed: frameworks put pages of their own around what the engine has said."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if _A_RANK.search(line)), lines[0] if lines else text)


def _commits_of_source(own: int) -> int:
    session = _process.session
    if session is None or session.place.size == 1:
        return max(own, 0)
    array = np.array([max(own, 0)], np.int64)
    handle = collectives.broadcast(array, source_rank(), "horovod.elastic.commits", global_process_set)
    return int(table.synchronize(handle)[0])


def _tell_commit(number: int) -> None:
    elastic_world.progress.commit = number
    if elastic_world.enabled():
        elastic_world.report({"type": "commit", "commit": number})


def _tell_time(stage: str, seconds: float) -> None:
    assignment = elastic_world.assignment()
    if assignment is not None:
        elastic_world.report(
            {"type": "timing", "generation": assignment.generation, "stage": stage, "seconds": seconds}
        )
