"""Ctrl-\\ at the launcher: asks every rank where it is, and shows the answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from horovod.runner.launcher.event_log import EventLog

AGAIN = 3.0  # seconds in which a second Ctrl-\ kills, as it always did


class StackRequests:
    """``ask_stacks``, or request(), sends the request to rank 0; False if that is not there."""

    def __init__(self, ask_stacks: Callable[[], bool]) -> None:
        self.request = ask_stacks
        self._asked: float | None = None
        self._answers: deque[str] = deque()

    def listen(self, events: EventLog, wake: Callable[[], None]) -> None:
        """Notices answers among the events, in whatever thread they come."""

        def heard(event: Mapping[str, Any]) -> None:
            if asked_for(event):
                self._answers.append(shown(event))
                wake()

        events.tell(heard)

    def ask(self, now: float) -> str:
        """Ctrl-\\: what to tell the user; nothing if it is to be taken as a wish to end the job."""
        if self._asked is not None and now < self._asked + AGAIN:
            return ""
        self._asked = now
        if self.request():
            return f"asking every rank where it is; Ctrl-\\ within {AGAIN:g} s kills the job"
        return (
            "no rank can be asked where it is: rank 0 has not called hvd.init(), or has ended; "
            f"Ctrl-\\ within {AGAIN:g} s kills the job"
        )

    def answers(self) -> Iterator[str]:
        """Those that have come, to be shown."""
        while self._answers:
            yield self._answers.popleft()


def asked_for(event: Mapping[str, Any]) -> bool:
    """Whether an event is the answer of a rank. Those that belong to a stall have been shown with it."""
    return bool(event["event"] == "stacks") and event.get("reason", "request") == "request"


def shown(event: Mapping[str, Any]) -> str:
    """A rank's stacks, as lines."""
    head = f"rank {event.get('rank')} ({event.get('host', '?')}, pid {event.get('pid', '?')}):"
    lines = [f"  {line}" for line in str(event.get("text", "")).splitlines()]
    return "\n".join([f"horovodrun: {head}", *lines]) + "\n"
