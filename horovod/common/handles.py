"""Operations in flight: what keeps their memory alive and turns them into results."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from horovod import _core
from horovod.common.session import state


class Pending:
    """An operation for the engine. `keep` holds everything whose memory the engine uses.

    It enters the table before it is submitted: a Ctrl-C in between must not free that memory.
    """

    __slots__ = ("_engine", "_finish", "keep", "number")

    def __init__(
        self, engine: _core.Engine, finish: Callable[[_core.Engine, int], Any], keep: object
    ) -> None:
        self._engine = engine
        self._finish = finish
        self.keep = keep
        self.number = 0  # the engine's handle

    def poll(self) -> bool:
        return self._engine.poll(self.number)

    def wait(self) -> int:
        return self._engine.wait(self.number)

    def take(self, code: int) -> Any:
        """The result, or the error that `code` from wait() stands for. Only once."""
        engine, number = self._engine, self.number
        try:
            if code < 0:
                raise engine.failure(number, code)
            return self._finish(engine, number)
        finally:
            engine.release(number)


class InPlace:
    """As Pending, of an operation whose result is in its place when it has ended: less work for each."""

    __slots__ = ("_engine", "_result", "keep", "number")

    def __init__(self, engine: _core.Engine, result: object, keep: object) -> None:
        self._engine = engine
        self._result = result
        self.keep = keep
        self.number = 0

    def poll(self) -> bool:
        return self._engine.poll(self.number)

    def wait(self) -> int:
        return self._engine.finish(self.number)

    def take(self, code: int) -> Any:
        if code < 0:
            try:
                raise self._engine.failure(self.number, code)
            finally:
                self._engine.release(self.number)
        return self._result


class Finished:
    """An operation that has nothing to do, such as an empty group."""

    __slots__ = ("_result",)

    def __init__(self, result: object) -> None:
        self._result = result

    def poll(self) -> bool:
        return True

    def wait(self) -> int:
        return _core.OK

    def take(self, code: int) -> Any:
        return self._result


class HandleTable:
    """The handles that users hold: ints that are unique in the life of the process."""

    def __init__(self) -> None:
        self._pending: dict[int, Pending | InPlace | Finished] = {}
        self._numbers = itertools.count(1)

    def add(self, pending: Pending | InPlace | Finished) -> int:
        handle = next(self._numbers)
        self._pending[handle] = pending
        return handle

    def discard(self, handle: int) -> None:
        """Takes back what was added but could not be submitted."""
        self._pending.pop(handle, None)

    def poll(self, handle: int) -> bool:
        """Whether the operation is done, so that synchronize() would not block."""
        pending = self._pending.get(handle)
        if pending is None:
            raise ValueError(f"handle {handle} is unknown or was synchronized already")
        return pending.poll()

    def synchronize(self, handle: int) -> Any:
        """Waits and returns the output.

        None for a handle that is unknown or was synchronized already.
        """
        pending = self._pending.get(handle)
        if pending is None:
            return None
        # If Ctrl-C ends the wait, the entry must stay: the engine still uses the memory.
        code = pending.wait()
        # Of several threads that wait for one handle, the first gets the result.
        if self._pending.pop(handle, None) is None:
            return None
        return pending.take(code)

    def forget_all(self) -> None:
        """Drops everything; only when no engine runs."""
        self._pending.clear()


table = HandleTable()
state.on_fork.append(table.forget_all)
