"""Programs of the system that tests need, which are installed if possible, and packages of Python."""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

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


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # what it is part of
        return False


def needs(*names: str) -> None:
    """Skips a test, or a file of tests, unless these Python packages are installed; imports none of them."""
    missing = [name for name in names if not _installed(name)]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}, which is not installed", allow_module_level=True)


class Lazy:
    """A module that is imported when something of it is wanted, not by everybody who collects tests."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "pytest", "_pytest", "_mock")):  # what pytest asks everything for
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)
