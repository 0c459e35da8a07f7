"""Notes that the processes of an experiment leave for each other and for the test: files in one directory."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds for something that should happen at once


class Notes:
    """A note is there completely or not at all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, name: str, **values: Any) -> None:
        """Leaves a note, with the time (system-wide monotonic clock) and the writer's process id."""
        self._directory.mkdir(exist_ok=True)
        draft = self._directory / f".{name}.{os.getpid()}"
        draft.write_text(json.dumps({"at": time.monotonic(), "pid": os.getpid(), **values}))
        draft.rename(self._directory / name)

    def read(self, name: str) -> dict[str, Any] | None:
        """The note, if it is there."""
        try:
            note: dict[str, Any] = json.loads((self._directory / name).read_text())
        except FileNotFoundError:
            return None
        return note

    def wait(self, name: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """The note, once it is there; TimeoutError names it if it does not come."""
        deadline = time.monotonic() + seconds
        while (note := self.read(name)) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no note {name!r} after {seconds:g} s")
            time.sleep(0.002)
        return note
