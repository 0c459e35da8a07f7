"""A deadline with a message."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """The time is over; the text says for what."""


class Timeout:
    """``timeout`` seconds from now. ``message`` may contain ``{activity}`` and ``{timeout}``."""

    def __init__(self, timeout: float, message: str) -> None:
        self._seconds = timeout
        self._end = time.monotonic() + timeout
        self._message = message

    def remaining(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Whether none is left."""
        return self.remaining() == 0.0

    def check_time_out_for(self, activity: str) -> None:
        """TimeoutException if none is left."""
        if self.timed_out():
            raise TimeoutException(self._message.format(activity=activity, timeout=self._seconds))
