"""The jobs of this user on this machine: a directory for each, with what it is and its events.

``$XDG_STATE_HOME/horovod/jobs/<id>/`` belongs to the user alone. An id begins with the time of the
start, so that the order of the names is that of the jobs. Machines may share the directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horovod._figures.private_files import state_directory

KEPT = 20
EVENTS = "events.jsonl"
_ABOUT = "job.json"


@dataclass(frozen=True)
class JobEntry:
    """A job as its directory tells it."""

    id: str
    path: Path
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return int(self.about.get("pid", 0))

    @property
    def running(self) -> bool:
        """Whether its launcher lives: the process, not one that got the same number later."""
        if "code" in self.about or self.elsewhere:
            return False
        return bool(started_at(self.pid) == self.about.get("ticks", -1))

    @property
    def elsewhere(self) -> bool:
        """Whether another machine, with the same home directory, has it: only there one can see
        whether it still runs.
        """
        return "code" not in self.about and self.about.get("node", node()) != node()


def directory(environ: Mapping[str, str]) -> Path:
    """Where the jobs are."""
    return state_directory(environ) / "jobs"


def create(jobs: Path, now: float, pid: int) -> Path:
    """A directory for a new job; those of old ones are removed. OSError if it can't be made."""
    jobs.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{pid}"
    path = jobs / name
    path.mkdir(mode=0o700)
    for entry in listed(jobs)[:-KEPT]:
        if not (entry.running or entry.elsewhere):
            shutil.rmtree(entry.path, ignore_errors=True)
    return path


def write_about(path: Path, about: Mapping[str, Any]) -> None:
    """Says what the job is. Readers see the old text or the new one."""
    new = path / f".{_ABOUT}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(about, file)
    os.replace(new, path / _ABOUT)


def listed(jobs: Path) -> list[JobEntry]:
    """All jobs, the oldest first."""
    try:
        paths = sorted(path for path in jobs.iterdir() if path.is_dir())
    except OSError:
        return []
    return [JobEntry(path.name, path, _about(path)) for path in paths]


def find(jobs: Path, word: str | None) -> JobEntry:
    """The job with this id, or the beginning or end of one; None: the last that runs.

    ValueError says what there is instead.
    """
    entries = listed(jobs)
    if word is None:
        running = [entry for entry in entries if entry.running]
        if not running:
            raise ValueError("no job of horovodrun runs here as this user")
        return running[-1]
    exact = [entry for entry in entries if entry.id == word]
    found = exact or [entry for entry in entries if entry.id.startswith(word) or entry.id.endswith(word)]
    if len(found) != 1:
        what = "fits several jobs" if found else "is no job"
        raise ValueError(f"{word!r} {what}: 'horovodrun --jobs' lists them")
    return found[0]


def named(environ: Mapping[str, str], word: str | None) -> JobEntry | None:
    """The job of this user that find() finds; None if there is none, which the user is told."""
    try:
        return find(directory(environ), word)
    except ValueError as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return None


def node() -> str:
    """The name of this machine."""
    return socket.gethostname()


def started_at(pid: int) -> int | None:
    """When a process was started, in ticks since the start of the machine; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _about(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        about = json.loads((path / _ABOUT).read_text(encoding="utf-8"))
        if isinstance(about, dict):
            return about
    return {}
