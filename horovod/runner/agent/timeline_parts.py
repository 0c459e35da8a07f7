"""The ranks' parts of a timeline on a host that is not the launcher's: a place for them, and back.

They travel when all is over, so that a measurement does not disturb what it measures.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "HOROVOD_TIMELINE"


class PartsDirectory:
    """A directory of this user's alone, until close()."""

    def __init__(self, timeline: str) -> None:
        self._path = Path(tempfile.mkdtemp(prefix="horovod-timeline-"))
        self.timeline = str(self._path / os.path.basename(timeline))

    def parts(self) -> dict[str, bytes]:
        """What the ranks have recorded, by file."""
        return {path.name: path.read_bytes() for path in sorted(self._path.glob("*.part"))}

    def close(self) -> None:
        """Removes it."""
        shutil.rmtree(self._path, ignore_errors=True)


def packed(parts: Mapping[str, bytes]) -> bytes:
    """All files as one: a line with their names and sizes, then what is in them."""
    sizes = {name: len(data) for name, data in parts.items()}
    return json.dumps(sizes).encode() + b"\n" + b"".join(parts.values())


def unpacked(data: bytes) -> dict[str, bytes]:
    """The files; the last one is cut, and others are missing, if the agent was lost meanwhile."""
    line, separator, rest = data.partition(b"\n")
    parts: dict[str, bytes] = {}
    if not separator:
        return parts
    for name, size in json.loads(line).items():
        if rest:
            parts[os.path.basename(name)], rest = rest[:size], rest[size:]
    return parts
