"""How a function gets to the workers and their results back: horovod.run -> launcher -> agents ->
workers.

At both ends of the chain it is files without a name in memory, in between the pipes to the agents:
neither function nor result is ever on disk or on a port.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

DESCRIPTORS = "_HOROVOD_TASK_FDS"  # "<payload>,<result>"


@dataclass(frozen=True)
class Payload:
    """What horovod.run() wants of the launcher: three descriptors in a variable.

    The payload to pass on, where to put the results, and a pipe whose end means that the caller is
    gone.
    """

    VARIABLE: ClassVar[str] = "_HOROVOD_RUN_FDS"

    source: int
    results: int
    parent: int

    @staticmethod
    def from_environment(environ: Mapping[str, str]) -> Payload | None:
        text = environ.get(Payload.VARIABLE)
        return None if text is None else Payload(*map(int, text.split(",")))

    def environment(self) -> dict[str, str]:
        return {self.VARIABLE: f"{self.source},{self.results},{self.parent}"}

    def content(self) -> bytes:
        return read_all(self.source)

    def deliver(self, results: Mapping[int, bytes]) -> None:
        """A line of JSON with the sizes by rank, then the results one after another."""
        header = json.dumps({str(rank): len(result) for rank, result in results.items()}).encode()
        write_all(self.results, b"".join([header, b"\n", *results.values()]))


def unpack_results(content: bytes) -> dict[int, bytes]:
    """What deliver() has written, by rank."""
    header, _, rest = content.partition(b"\n")
    results: dict[int, bytes] = {}
    start = 0
    for rank, size in json.loads(header or b"{}").items():
        results[int(rank)] = rest[start : start + size]
        start += size
    return results


class WorkerFiles:
    """The agent's ends."""

    def __init__(self, payload: bytes) -> None:
        self._payload = memory_file(payload)
        self._result = memory_file(b"")

    def descriptors(self) -> tuple[int, int]:
        """For the worker to inherit."""
        return self._payload, self._result

    def environment(self) -> dict[str, str]:
        return {DESCRIPTORS: f"{self._payload},{self._result}"}

    def take_result(self) -> bytes:
        """What the worker wrote; closes both."""
        data = read_all(self._result)
        self.close()
        return data

    def close(self) -> None:
        """There will be no result."""
        os.close(self._payload)
        os.close(self._result)


def memory_file(content: bytes) -> int:
    """A descriptor of a file without a name; the caller closes it."""
    descriptor = os.memfd_create("horovod-task", os.MFD_CLOEXEC)
    write_all(descriptor, content)
    return descriptor


def write_all(descriptor: int, content: bytes) -> None:
    """Writes from the beginning."""
    left, offset = memoryview(content), 0
    while left:
        count = os.pwrite(descriptor, left, offset)
        left, offset = left[count:], offset + count


def read_all(descriptor: int) -> bytes:
    """The whole content, wherever the file position is."""
    pieces: list[bytes] = []
    offset = 0
    while piece := os.pread(descriptor, 1 << 24, offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)
