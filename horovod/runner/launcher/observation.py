"""What rank 0 tells the launcher while the job runs, and what it is asked."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod._net.frames import FrameError, FrameStream
from horovod._net.handshake import Session
from horovod.runner.launcher.event_log import NAMES, EventLog
from horovod.runner.launcher.rendezvous import Rendezvous

PURPOSE = "observe"
VARIABLE = "_HOROVOD_OBSERVE"  # tells the ranks that somebody listens, and how often to speak
# What ranks may say; the rest is the launcher's to know.
_FROM_RANKS = frozenset(
    ("world", "stall", "stall_resolved", "hang", "stacks", "slow_rank", "autotune", "failure")
)
_LIMIT = 4 << 20
_SECONDS = 5.0
_FOREVER = 1e6  # seconds; poll() takes no more than some weeks

# Time, summaries of the ranks, figures of the user, and what rank 0 has counted.
Summaries = Callable[[float, Sequence[Mapping[str, Any]], Mapping[str, Any], Mapping[str, Any]], None]


class Observation:
    """Takes rank 0's connections, each in a thread of its own, so that the job waits for nothing."""

    def __init__(self, rendezvous: Rendezvous, events: EventLog, summaries: Summaries) -> None:
        self._events = events
        self._summaries = summaries
        self._lock = threading.Lock()
        self._stream: FrameStream | None = None
        self._places: dict[int, dict[str, Any]] = {}  # of each rank, host and pid
        events.tell(self._noted)
        rendezvous.accept(PURPOSE, self._accepted)

    def ask_stacks(self) -> bool:
        """Asks for the stacks of all ranks, which come as events; False if nobody is there."""
        with self._lock:
            stream = self._stream
            if stream is None:
                return False
            try:
                stream.send({"type": "stacks"}, time.monotonic() + _SECONDS)
            except (OSError, TimeoutError, FrameError):
                return False
            return True

    def _accepted(self, sock: socket.socket, session: Session) -> None:
        threading.Thread(target=self._listen, args=(sock, session), name="hvd-observe", daemon=True).start()

    def _listen(self, sock: socket.socket, session: Session) -> None:
        stream = FrameStream(sock, session, _LIMIT)
        with self._lock:
            self._stream = stream
        try:
            with contextlib.suppress(
                OSError, EOFError, FrameError, TimeoutError, ValueError, KeyError, TypeError
            ):
                while True:
                    self._heard(stream.receive(time.monotonic() + _FOREVER))
        finally:
            with self._lock:
                if self._stream is stream:
                    self._stream = None
            sock.close()

    def _noted(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "rank_started":
            self._places[event["rank"]] = {"host": event["host"], "pid": event["pid"]}

    def _heard(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "summaries":
            told = (message.get(part, {}) for part in ("user", "metrics"))
            self._summaries(time.time(), message["ranks"], *told)
        elif message["type"] == "event":
            event = dict(message["event"])
            name = str(event.pop("event"))
            event.pop("time", None)  # by this machine's clock, as all of the log
            if name in _FROM_RANKS and name in NAMES:
                if name == "stacks":
                    event = {**self._places.get(event.get("rank", -1), {}), **event}
                self._events.add(name, **event)
