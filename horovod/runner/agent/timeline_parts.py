"""The ranks' parts of a timeline on a host that is not the launcher's: a place for them, and back.

They travel when all is over, so that a measurement does not disturb what it measures.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "HOROVOD_TIMELINE"


class PartsDirectory:
    """A directory of this user's alone, until close()."""

    def __init__(self, timeline: str) -> None:
        self._path = Path(tempfile.mkdtemp(prefix="horovod-timeline-"))
        self.timeline = str(self._path / os.path.basename(timeline))

    def part(self, rank: int) -> bytes:
        """What a rank has recorded; empty if nothing."""
        try:
            return Path(f"{self.timeline}.rank{rank}.part").read_bytes()
        except OSError:
            return b""

    def close(self) -> None:
        """Removes it."""
        shutil.rmtree(self._path, ignore_errors=True)


def parts_of(directory: PartsDirectory, ranks: list[int]) -> Iterator[tuple[int, bytes]]:
    """The parts that there are."""
    for rank in ranks:
        part = directory.part(rank)
        if part:
            yield rank, part
