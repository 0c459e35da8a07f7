"""The last operations of a worker, which stay readable when it was killed.

The worker's engine writes them (csrc/engine/recent_operations.h) to a file in memory that the agent has made.
"""

from __future__ import annotations

import os
import struct

VARIABLE = "_HOROVOD_RECENT"  # as in horovod/_bootstrap/identity/variables.py
NAME = "horovod-recent"
_ENTRY = struct.Struct("=QQQII96s")  # begin, end, bytes, tensors, length of the name, name
_KEPT = 64
_TOLD = 10


class RecentFile:
    """The agent's end."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, _ENTRY.size * (1 + _KEPT))

    def take(self, now: int) -> str:
        """In words, '' if there were none; closes it. `now` is time.monotonic_ns()."""
        content = os.pread(self.descriptor, _ENTRY.size * (1 + _KEPT), 0)
        self.close()
        return told(content, now)

    def close(self) -> None:
        os.close(self.descriptor)


def told(content: bytes, now: int) -> str:
    """The last ones, the latest first, as the engine itself tells them at a failure.

    Whoever was killed may have left the oldest one half written; that is never among them.
    """
    (count,) = struct.unpack_from("=Q", content)
    words = []
    for number in range(count - 1, max(-1, count - 1 - _TOLD), -1):
        begin, end, size, tensors, length, name = _ENTRY.unpack_from(
            content, _ENTRY.size * (1 + number % _KEPT)
        )
        seconds = max(0, now - (end or begin)) / 1e9
        age = f"{seconds:.1f} s ago" if end else f"running for {seconds:.1f} s"
        others = " and others" if tensors > 1 else ""
        words.append(f"{name[:length].decode(errors='replace')}{others} ({size} bytes, {age})")
    return ", ".join(words)
