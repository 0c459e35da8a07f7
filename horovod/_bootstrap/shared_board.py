"""A notice in a directory that several hosts see, without a crowd at the file server.

Each rank could look there all the time, but hundreds of them would keep a network file system busy. So the
ranks of a host together look about as often as a single one would, and whoever finds the notice puts a copy
up on the host for the others.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator

from horovod._bootstrap.notice import Notice
from horovod._bootstrap.noticeboard import Noticeboard

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25  # seconds between two looks from a host
_LONGEST_PAUSE_OF_A_RANK = 5.0  # in case that nobody puts up a copy


class SharedBoard:
    """`copies` is a board on this host, if there is a place for one; `neighbours` ranks of it take part."""

    def __init__(self, shared: Noticeboard, copies: Noticeboard | None, neighbours: int) -> None:
        self._shared = shared
        self._copies = copies
        self._ranks = neighbours if copies is not None else 1
        self._pause = _FIRST_PAUSE * self._ranks
        self._due = time.monotonic()
        self._seen: Notice | None = None  # of the copies
        self._copy = contextlib.ExitStack()  # takes down the one that this rank has put up

    def close(self) -> None:
        """Also takes down the copy: when a rank is through, all have found their way."""
        self._copy.close()
        self._shared.close()
        if self._copies is not None:
            self._copies.close()

    @contextlib.contextmanager
    def offer(self, notice: Notice) -> Iterator[None]:
        with self._shared.offer(notice):
            self._put_up_copy(notice)
            yield

    def look(self) -> Notice | None:
        now = time.monotonic()
        copy = self._look_at_copy()
        if now < self._due or (copy is not None and copy != self._seen):
            self._seen = copy  # if it leads nowhere, a killed job has left it behind: see the original
            return copy
        # From nothing to twice the mean, so that of many ranks one looks soon.
        self._due = now + random.uniform(0.0, 2.0) * min(self._pause, _LONGEST_PAUSE_OF_A_RANK)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE * self._ranks)
        notice = self._shared.look()
        if notice is not None and notice != copy:
            self._put_up_copy(notice)
        return notice or copy

    def waiting_for(self) -> str:
        return self._shared.waiting_for()

    def _look_at_copy(self) -> Notice | None:
        with contextlib.suppress(ValueError):  # without a good one there is still the original
            return None if self._copies is None else self._copies.look()
        return None

    def _put_up_copy(self, notice: Notice) -> None:
        self._copy.close()
        if self._copies is not None:
            with contextlib.suppress(OSError):
                self._copy.enter_context(self._copies.offer(notice))
