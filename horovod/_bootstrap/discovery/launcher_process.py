"""The process that started the ranks of this host, by which they know that they belong together."""

from __future__ import annotations

import os
from pathlib import Path


def launcher_process(marker: str) -> str:
    """The nearest ancestor whose environment lacks `marker`: its pid and start time, unique on this
    host.

    Wrappers between the launcher and a rank, such as a shell, have inherited the variable.
    """
    pid = os.getppid()
    while pid > 1:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            break  # of another user, such as Slurm's daemon
        if not any(entry.startswith(f"{marker}=".encode()) for entry in environ):
            break
        parent = _stat(pid, 3)
        if not parent:
            break
        pid = int(parent)
    return f"{pid}.{_stat(pid, 21)}"


def _stat(pid: int, index: int) -> str:
    """A field of /proc/<pid>/stat, counted from 0 as in proc(5) minus 1; empty if there is none."""
    try:
        # The name, in parentheses, may contain anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[index - 2]
    except (OSError, IndexError):
        return ""
