"""Programs of the system that tests need: installed if possible, so that a fresh machine runs all tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

_INSTALL_SECONDS = 200


def path() -> str:
    """Where programs are looked for, also those for the administrator."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def why_not(programs: Mapping[str, str]) -> str | None:
    """Sees to it that these programs are there; `programs` tells the Debian package of each.

    Returns None, or what is missing and the command that helps.
    """
    # Two processes may run tests at the same time.
    with open(Path(tempfile.gettempdir()) / "hvd-test-packages.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _missing(programs) and os.geteuid() == 0 and shutil.which("apt-get"):
            for words in (["install", "-qq", "-y", *_missing(programs)], ["update", "-qq"]) * 2:
                subprocess.run(["apt-get", *words], capture_output=True, timeout=_INSTALL_SECONDS)
                if not _missing(programs):
                    break
    missing = _missing(programs)
    return f"needs other programs: apt-get install {' '.join(missing)}" if missing else None


def _missing(programs: Mapping[str, str]) -> list[str]:
    return [package for program, package in programs.items() if shutil.which(program, path=path()) is None]
