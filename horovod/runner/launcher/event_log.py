"""The event log: a line of JSON for everything that happens to a job as a whole.

``{"time": <seconds since 1970>, "event": <name>, ...}``. Each line is written at once by a single
call, so that a reader never sees half of one. No keys, no variables of the user.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

SCHEMA = 1
# What there is; docs/observability.md says what belongs to each.
NAMES = (
    "job_start",
    "rank_started",
    "world",
    "step",
    "stall",
    "stall_resolved",
    "hang",
    "stacks",
    "slow_rank",
    "rank_exit",
    "failure",
    "host_lost",
    "reset",
    "signal",
    "autotune",
    "job_end",
)
_MASK = "<secret>"
_KINDS = (
    r"(?:pass(?:word|wd|phrase)?|token|secret|credential|"
    r"(?:api|private|secret|access|account|auth|encryption|signing)[-_]?key)s?"
)
_SECRET = re.compile(rf"(?i){_KINDS}$")
# Within a word, as those of a shell's whole command are, and in addresses
_WITHIN = re.compile(
    rf"""(?i)((?<![\w-])[\w-]*{_KINDS}=|(?<![\w-])-[\w-]*{_KINDS}\s+(?!-)|\bbearer\s+)('[^']*'|"[^"]*"|[^\s'"]+)"""
)
_ADDRESS = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")

Event = dict[str, Any]


class EventLog:
    """Writes events to files and tells listeners of them, from any thread.

    A file that can't be written any more costs a warning, not the job: ``warn`` is called with it.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.warn: Callable[[str], None] = lambda text: None
        self._clock = clock
        self._lock = threading.Lock()
        self._files: dict[Path, int] = {}
        self._listeners: list[Callable[[Event], None]] = []

    def write_to(self, path: Path) -> None:
        """Also writes to this file, which is made if need be. OSError.

        A pipe that nobody reads is one; one whose reader is too slow ends the log.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._files[path] = os.open(path, flags, 0o600)

    def tell(self, listener: Callable[[Event], None]) -> None:
        """Also calls ``listener`` with each event; it must not block."""
        self._listeners.append(listener)

    def add(self, event: str, **fields: Any) -> None:
        """An event that happens now."""
        if event not in NAMES:
            raise ValueError(f"{event!r} is not the name of an event")
        entry = {"time": round(self._clock(), 3), "event": event, **fields}
        line = json.dumps(entry, ensure_ascii=True, allow_nan=False, default=str).encode() + b"\n"
        with self._lock:
            for path, descriptor in list(self._files.items()):
                self._write(path, descriptor, line)
            for listener in self._listeners:
                listener(entry)

    def close(self) -> None:
        """Closes the files."""
        with self._lock:
            for descriptor in self._files.values():
                os.close(descriptor)
            self._files.clear()

    def _write(self, path: Path, descriptor: int, line: bytes) -> None:
        try:
            if os.write(descriptor, line) == len(line):
                return
            problem = "no space is left"
        except OSError as error:
            problem = error.strerror or str(error)
        os.close(descriptor)
        del self._files[path]
        self.warn(f"the event log {path} ends here: {problem}")


def read(lines: Iterable[bytes]) -> list[Event]:
    """The events of a file; what is not a whole line of one is left out."""
    events: list[Event] = []
    for line in lines:
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if line.endswith(b"\n") and isinstance(entry, dict) and "event" in entry and "time" in entry:
                events.append(entry)
    return events


def without_secrets(words: Sequence[str]) -> list[str]:
    """A command line whose passwords and tokens, as far as the names of flags tell, are masked."""
    result: list[str] = []
    masked = False
    for word in words:
        name, equals, _ = word.partition("=")
        secret = bool(_SECRET.search(name)) and (word.startswith("-") or bool(equals)) and " " not in name
        if masked and not word.startswith("-"):
            result.append(_MASK)
        else:
            result.append(f"{name}={_MASK}" if secret and equals else _masked_within(word))
        masked = secret and not equals
    return result


def _masked_within(word: str) -> str:
    return _ADDRESS.sub(rf"\1{_MASK}@", _WITHIN.sub(rf"\1{_MASK}", word))


def settings_without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that flags and config file made, masked by their names."""
    return {
        name: _MASK if _SECRET.search(name) else _masked_within(value)
        for name, value in sorted(settings.items())
    }
