"""Runs programs of this directory under the real horovodrun and sees to it that nothing is left of them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from fault_notes import Notes
from runner_util import Launcher
from util_paths import SUPPORT

HERE = Path(__file__).parent
GRACE = 0.5  # seconds that horovodrun gives the others, unless a test says otherwise
_OURS = ("hvd", "horovod")


def _traces(directory: str) -> set[str]:
    return {entry.name for entry in os.scandir(directory)}


class Job:
    """A horovodrun in its own temporary directory; `notes` is where its ranks tell what they saw."""

    def __init__(
        self, directory: Path, np: int, program: str, *arguments: str, grace: float, **environment: str
    ) -> None:
        self.notes = Notes(directory / "notes")
        self._temporary = directory / "tmp"
        self._temporary.mkdir()
        self._before = _traces("/dev/shm")
        spec = importlib.util.find_spec("horovod")
        assert spec is not None and spec.origin is not None
        self.began = time.monotonic()
        self.launcher = Launcher(
            "-np",
            str(np),
            "--grace-period",
            str(grace),
            sys.executable,
            str(HERE / program),
            *arguments,
            str(directory / "notes"),
            cwd=directory,
            env={
                "PYTHONPATH": os.pathsep.join([str(Path(spec.origin).parents[1]), str(SUPPORT)]),
                "TMPDIR": str(self._temporary),
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
                **environment,
            },
        )

    def finish(self, seconds: float) -> subprocess.CompletedProcess[str]:
        """Waits for the end, and looks for leftovers."""
        result = self.launcher.finish_all(seconds)
        self.check_no_files()
        return result

    def check_no_files(self) -> None:
        """Nothing in the job's own temporary directory, and nothing of ours in /dev/shm."""
        assert _traces(str(self._temporary)) == set()
        # Other programs of the machine come and go there, so only the name tells.
        new = _traces("/dev/shm") - self._before
        assert not [name for name in new if any(word in name.lower() for word in _OURS)]


class StartJob(Protocol):
    """The fixture `start`."""

    def __call__(
        self, np: int, program: str, *arguments: str, grace: float = GRACE, **environment: str
    ) -> Job: ...
