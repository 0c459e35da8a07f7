"""An endpoint in a directory that several hosts see, without a crowd at the file server.

Each rank could look there all the time, but hundreds of them would keep a network file system busy.
So the ranks of a host together look about as often as a single one would, and the one that finds
the file leaves a copy on the host for the others.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator

from horovod._bootstrap.discovery.endpoint import RendezvousEndpoint
from horovod._bootstrap.discovery.shared_file import SharedFile

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25  # seconds between two looks from a host
_LONGEST_PAUSE_OF_A_RANK = 5.0  # in case that nobody leaves a copy


class NetworkFile:
    """`copies` is a file on this host, if there can be one; `neighbours` of its ranks take part."""

    def __init__(self, shared: SharedFile, copies: SharedFile | None, neighbours: int) -> None:
        self._shared = shared
        self._copies = copies
        self._ranks = neighbours if copies is not None else 1
        self._pause = _FIRST_PAUSE * self._ranks
        self._due = time.monotonic()
        self._seen: RendezvousEndpoint | None = None  # of the copies
        self._copy = contextlib.ExitStack()  # removes the one that this rank has left

    def close(self) -> None:
        """Also removes the copy: when a rank is through, all have found their way."""
        self._copy.close()
        self._shared.close()
        if self._copies is not None:
            self._copies.close()

    @contextlib.contextmanager
    def publish(self, endpoint: RendezvousEndpoint) -> Iterator[None]:
        with self._shared.publish(endpoint):
            self._leave_copy(endpoint)
            yield

    def poll(self) -> RendezvousEndpoint | None:
        now = time.monotonic()
        copy = self._poll_copy()
        if now < self._due or (copy is not None and copy != self._seen):
            # If it leads nowhere, a killed job has left it behind: see the original
            self._seen = copy
            return copy
        # From nothing to twice the mean, so that of many ranks one looks soon.
        self._due = now + random.uniform(0.0, 2.0) * min(self._pause, _LONGEST_PAUSE_OF_A_RANK)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE * self._ranks)
        endpoint = self._shared.poll()
        if endpoint is not None and endpoint != copy:
            self._leave_copy(endpoint)
        return endpoint or copy

    def waiting_for(self) -> str:
        return self._shared.waiting_for()

    def _poll_copy(self) -> RendezvousEndpoint | None:
        with contextlib.suppress(ValueError):  # without a good one there is still the original
            return None if self._copies is None else self._copies.poll()
        return None

    def _leave_copy(self, endpoint: RendezvousEndpoint) -> None:
        self._copy.close()
        if self._copies is not None:
            with contextlib.suppress(OSError):
                self._copy.enter_context(self._copies.publish(endpoint))
