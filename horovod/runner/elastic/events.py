"""The events file of an elastic job: a line of JSON for everything that changed it."""

from __future__ import annotations

import json
import time
from typing import Any, TextIO


class Events:
    """Appends to a file, or to nothing."""

    def __init__(self, path: str | None) -> None:
        """OSError if the file can't be written."""
        # Closed by close(): it is open as long as the job runs.
        self._file: TextIO | None = None if path is None else open(path, "a", encoding="utf-8")  # noqa: SIM115

    def write(self, event: str, **data: Any) -> str | None:
        """Adds a line; returns why it could not be, once."""
        if self._file is None:
            return None
        line = json.dumps({"time": round(time.time(), 3), "event": event, **data})
        try:
            self._file.write(line + "\n")
            self._file.flush()  # whoever reads along sees it at once
        except OSError as error:
            name, self._file = self._file.name, None
            return f"writing {name} failed: {error.strerror}; the job goes on without it"
        return None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
