"""The thread that hears what the engine has to tell, and tells it where this process's threads are.

It is parked in a call of the core, without Python's lock, and wakes up only when there is something.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from horovod import _core

Listener = Callable[[dict[str, Any]], None]

_HOW = {_core.STACKS_PYTHON: "python", _core.STACKS_SIGNAL: "faulthandler", _core.STACKS_STATES: "proc"}
# No handler can have these, or faulthandler does not give it to them.
_UNUSABLE = frozenset(
    getattr(signal, f"SIG{name}") for name in ("KILL", "STOP", "SEGV", "FPE", "ABRT", "BUS", "ILL")
)
_FRAMES = 12  # of each thread,
_OUTER = 4  # among them the outermost: a framework's own may hide the line of the program
_PATIENCE = 3.0  # seconds, for the stacks of all ranks

_OWN = frozenset(("hvd-notices", "hvd-feed", "hvd-door"))  # threads that do nothing for the program

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Has `listener` called with every event, on the observer's thread: it must not take long."""
    _listeners.append(listener)


def forget(listener: Listener) -> None:
    """Ends listen()."""
    with contextlib.suppress(ValueError):
        _listeners.remove(listener)


def tell(event: dict[str, Any]) -> None:
    """Hands an event to the listeners."""
    event.setdefault("time", time.time())
    for listener in list(_listeners):
        _inform(listener, event)


def _inform(listener: Listener, event: dict[str, Any]) -> None:
    try:
        listener(event)
    except Exception:  # one that fails must not keep the others from hearing
        import logging  # here: not every process has it loaded

        logging.getLogger("horovod").exception("a listener failed on the event %s", event.get("event"))


def stacks(skip: int | None = None) -> str:
    """Where the threads of this process are: a line each, the main thread first, the innermost frame
    first. Threads of ours that only wait are left out, and that with the identifier `skip`."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sys._current_frames()
    lines = []
    for ident in sorted(frames, key=lambda each: (each != main, each)):
        if ident == skip or names.get(ident) in _OWN:
            continue
        lines.append(f"{names.get(ident, f'thread {ident}')}: " + _frames(frames[ident]))
    return "\n".join(lines)


def _frames(frame: Any) -> str:
    every: list[Any] = []
    while frame is not None:
        every.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    places = [f"{_short(code.co_filename)}:{line} {code.co_name}" for code, line in every[: _FRAMES - _OUTER]]
    rest = every[_FRAMES - _OUTER :]
    if len(rest) > _OUTER:
        places.append("...")
    places += [f"{_short(code.co_filename)}:{line} {code.co_name}" for code, line in rest[-_OUTER:]]
    return " <- ".join(places)


def _short(path: str) -> str:
    """The last parts of a path: enough to find it."""
    return os.sep.join(path.split(os.sep)[-2:]) if path.startswith(os.sep) else path


class Observer:
    """The thread, and the signal for the case that it can't answer."""

    def __init__(
        self,
        engine: _core.Engine,
        stack_signal: int | None,
        peers: Sequence[tuple[str, int]],
        tuning: Listener | None,
    ) -> None:
        self._engine = engine
        self._tuning = tuning  # hears how the search for parameters goes
        self._peers = peers  # hosts and process ids of the ranks
        self._answers: dict[int, dict[int, str]] = {}
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="horovod-observer", daemon=True)
        self._thread.start()
        # Last: if it fails, the thread ends with the engine, but the handler would stay.
        self._handler = None if stack_signal is None else _Handler(engine, stack_signal)

    def close(self) -> None:
        """After the engine's shutdown, which ends the thread."""
        if self._handler is not None:
            self._handler.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE)  # a listener may hold it up

    def _run(self) -> None:
        while True:
            event = self._engine.next_event(3600.0)
            if event is None:
                continue
            if event.kind == _core.EVENT_CLOSED:
                return
            self._take(event)

    def _take(self, event: _core.Event) -> None:
        if event.kind == _core.EVENT_DUMP:
            self._engine.answer(event.number, stacks(self._thread.ident))
        elif event.kind == _core.EVENT_REPORT:
            import json  # here: most processes never hear of anything

            tell(json.loads(event.text))
        elif event.kind == _core.EVENT_TUNING and self._tuning is not None:
            import json

            _inform(self._tuning, json.loads(event.text))
        elif event.kind == _core.EVENT_STACKS:
            with self._changed:
                if event.number in self._answers:
                    self._answers[event.number][event.rank] = event.text
                    self._changed.notify_all()
            host, pid = self._peers[event.rank]
            tell(
                {
                    "event": "stacks",
                    "rank": event.rank,
                    "host": host,
                    "pid": pid,
                    "text": event.text,
                    "how": _HOW.get(event.how, "proc"),
                }
            )

    def dump(self, rank: int, expected: int) -> dict[int, str]:
        """The stacks of a rank, or of all (-1): those that have answered after some seconds."""
        with self._collecting(rank) as answers:
            self._changed.wait_for(lambda: len(answers) >= expected, _PATIENCE)
            return dict(sorted(answers.items()))

    @contextlib.contextmanager
    def _collecting(self, rank: int) -> Iterator[dict[int, str]]:
        with self._changed:  # the thread waits for it, so no answer comes before it is expected
            number = self._engine.ask_stacks(rank, "request")
            answers = self._answers[number] = {}
            try:
                yield answers
            finally:
                del self._answers[number]


class _Handler:
    """faulthandler on a signal, writing to a pipe that the core reads."""

    def __init__(self, engine: _core.Engine, number: int) -> None:
        self._engine = engine
        self._number = number
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)  # nobody may wait in a handler
        import faulthandler

        faulthandler.register(number, file=self._write, all_threads=True, chain=False)
        engine.stack_signal(number, self._read)

    def close(self) -> None:
        self._engine.stack_signal(-1, -1)
        import faulthandler

        faulthandler.unregister(self._number)
        os.close(self._read)
        os.close(self._write)


def signal_number(text: str) -> int | None:
    """What HOROVOD_STACK_SIGNAL says: a number or a name, as SIGRTMIN+9. None for `none`."""
    text = text.strip().upper()
    if text == "NONE":
        return None
    name, plus, offset = text.partition("+")
    try:
        if name.isdigit():
            number = int(name)
        else:
            number = getattr(signal, name if name.startswith("SIG") else "SIG" + name).value
        number += int(offset) if plus else 0
    except (AttributeError, ValueError):
        number = 0
    if number not in signal.valid_signals() or number in _UNUSABLE:
        raise ValueError(
            f"HOROVOD_STACK_SIGNAL={text!r} is not valid: it must be the name or number of a signal, "
            "as SIGRTMIN+9, or none"
        )
    return number
