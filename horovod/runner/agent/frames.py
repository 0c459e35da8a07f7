"""Framed messages between the launcher and its agents, over pipes that never block.

A frame is a kind, a rank (-1: none; in an elastic job the number of a worker) and a payload. Both
ends are ours and the pipe is private, so there is no authentication; a malformed frame means that
something else wrote to the pipe and is an error.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterator
from enum import IntEnum, unique
from typing import NamedTuple

_HEADER = struct.Struct("!BiI")
_LIMIT = 64 << 20
_CHUNK = 1 << 16
_PIECE = 1 << 20


@unique
class Kind(IntEnum):
    """What a frame says."""

    # Launcher to agent.
    PLAN = 1  # JSON: what to start
    SIGNAL = 2  # signal number, as text: pass it on to the workers
    STOP = 3  # seconds from SIGTERM to SIGKILL, as text: end everything
    SURVEY = 4  # JSON: listen, and find the launcher
    PEERS = 5  # JSON: try the other hosts
    PAYLOAD = 6  # a piece of what every worker gets on a descriptor; before PLAN
    START = 7  # JSON: more workers of a plan that stays
    END = 8  # seconds from SIGTERM to SIGKILL, as text: end this worker and all that it has started
    # Agent to launcher.
    STARTED = 16  # process id, as text
    REFUSED = 17  # exit code and reason, as text: the command could not be started
    STDOUT = 18  # bytes that the rank wrote
    STDERR = 19
    # Return code as in subprocess (-n: signal n), as text; comes after what the rank itself wrote
    EXIT = 20
    LISTENING = 22  # JSON, answers SURVEY
    REACHED = 23  # JSON, answers PEERS
    RESULT = 24  # a piece of what the rank wrote to its result descriptor; before EXIT
    LEAVING = 25  # JSON: this host will be taken away
    TIMELINE = 26  # a piece of what its ranks have recorded for a timeline; before DONE
    # Process ids that could not be ended, as text; nothing else is left of the job on this host
    DONE = 21


class Frame(NamedTuple):
    """One message."""

    kind: Kind
    rank: int
    payload: bytes


class FrameReader:
    """Puts frames together from pieces of a stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Adds ``data`` and yields the frames completed by it. ValueError on anything else."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _HEADER.size:
                number, rank, length = _HEADER.unpack_from(self._buffer, start)
                if length > _LIMIT:
                    raise ValueError(f"frame of {length} bytes exceeds the limit of {_LIMIT}")
                end = start + _HEADER.size + length
                if len(self._buffer) < end:
                    break
                payload = bytes(self._buffer[start + _HEADER.size : end])
                start = end
                yield Frame(Kind(number), rank, payload)
        finally:
            del self._buffer[:start]


class FrameWriter:
    """Queues frames for a non-blocking descriptor, which it does not own."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.pending = 0  # bytes not yet written
        self.broken = False  # the other end is gone; everything is dropped
        self._queue: deque[memoryview] = deque()

    def put(self, kind: Kind, payload: bytes | str = b"", rank: int = -1) -> None:
        """Queues a frame; flush() sends it."""
        if self.broken:
            return
        if isinstance(payload, str):
            payload = payload.encode()
        data = _HEADER.pack(kind, rank, len(payload)) + payload
        self._queue.append(memoryview(data))
        self.pending += len(data)

    def put_line(self, line: bytes) -> None:
        """Queues a line of text, for a reader that does not know frames yet."""
        self._queue.append(memoryview(line + b"\n"))
        self.pending += len(line) + 1

    def put_pieces(self, kind: Kind, payload: bytes, rank: int = -1) -> None:
        """Queues a payload of any size as several frames."""
        for start in range(0, len(payload), _PIECE):
            self.put(kind, payload[start : start + _PIECE], rank)

    def flush(self) -> None:
        """Writes as much as the pipe takes now."""
        while self._queue:
            piece = self._queue[0]
            try:
                count = os.write(self.fd, piece[:_CHUNK])
            except BlockingIOError:
                return
            except OSError:
                self.abandon()
                return
            self.pending -= count
            if count == len(piece):
                self._queue.popleft()
            else:
                self._queue[0] = piece[count:]

    def abandon(self) -> None:
        """Drops what is queued and everything later: nobody reads any more."""
        self.broken = True
        self._queue.clear()
        self.pending = 0
