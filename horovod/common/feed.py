"""Rank 0 tells its launcher how the job goes: events at once, summaries every second or so.

A thread of its own with a connection of its own; a launcher that does not listen costs nothing but
the attempt. If it can't keep up, summaries are left out, never waited for by the training.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from horovod import _core
from horovod._net.connector import connect
from horovod._net.frames import FrameError, FrameStream
from horovod._net.handshake import AuthenticationError
from horovod.common import metrics, observer

if TYPE_CHECKING:
    from horovod._bootstrap.identity import Identity
    from horovod.common.session import Place

VARIABLE = "_HOROVOD_OBSERVE"  # seconds between summaries; set by horovodrun
PURPOSE = "observe"
_CONNECT_SECONDS = 5.0
_SEND_SECONDS = 2.0
_MOST = 1000  # events that wait to be sent
_END_SECONDS = 1.0


class Feed:
    """Runs from open() to close()."""

    def __init__(
        self,
        endpoint: tuple[str, int],
        key: bytes,
        every: float,
        figures: Callable[[], dict[str, Any]],
        ask_stacks: Callable[[], object],
    ) -> None:
        self._endpoint, self._key, self._every = endpoint, key, every
        self._figures, self._ask_stacks = figures, ask_stacks
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_sender.setblocking(False)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="hvd-feed", daemon=True)
        self._thread.start()

    def event(self, event: dict[str, Any]) -> None:
        """Sends an event, from any thread and without waiting."""
        if self._events.qsize() < _MOST:
            self._events.put(event)
            self._wake()

    def close(self) -> None:
        """Sends what is left, within a second."""
        observer.forget(self.event)
        self._closing = True
        self._wake()
        self._thread.join(_END_SECONDS)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"x")

    def _run(self) -> None:
        with contextlib.suppress(OSError, EOFError, FrameError, TimeoutError, AuthenticationError):
            sock, session = connect(self._endpoint, self._key, PURPOSE, _CONNECT_SECONDS)
            with sock:
                self._talk(FrameStream(sock, session), sock)

    def _talk(self, stream: FrameStream, sock: socket.socket) -> None:
        due = time.monotonic()
        poll = select.poll()
        poll.register(self._wake_receiver, select.POLLIN)
        poll.register(sock, select.POLLIN)
        while True:
            closing = self._closing
            with contextlib.suppress(queue.Empty):
                while True:
                    self._send(stream, {"type": "event", "event": self._events.get_nowait()})
            now = time.monotonic()
            if now >= due or closing:
                due = now + self._every
                self._send(stream, {"type": "summaries", **self._figures()})
            if closing:
                return
            for fd, _ in poll.poll(max(0.0, due - time.monotonic()) * 1000):
                if fd == self._wake_receiver.fileno():
                    self._wake_receiver.recv(4096)
                else:
                    for message in stream.receive_available():
                        if message.get("type") == "stacks":
                            self._ask_stacks()

    @staticmethod
    def _send(stream: FrameStream, message: dict[str, Any]) -> None:
        stream.send(message, time.monotonic() + _SEND_SECONDS)


class NoFeed:
    """Nobody listens."""

    def close(self) -> None:
        pass


def opened(launched: Identity, place: Place, transport: str, engine: _core.Engine) -> Feed | NoFeed:
    """The feed of rank 0, if its launcher listens."""
    every = _wanted()
    if every is None or launched.rank != 0 or launched.rendezvous is None or launched.key is None:
        return NoFeed()
    feed = Feed(
        launched.rendezvous,
        launched.key,
        every,
        figures=lambda: metrics.figures(engine),
        ask_stacks=lambda: engine.ask_stacks(-1, "request"),
    )
    observer.listen(feed.event)
    observer.tell({"event": "world", "rank": place.rank, "size": place.size, "transport": transport})
    return feed


def _wanted() -> float | None:
    """Seconds between summaries, if the launcher listens."""
    try:
        return max(0.1, float(os.environ[VARIABLE]))
    except (KeyError, ValueError):
        return None
