"""MPI libraries from PyPI, each in an environment of its own that is kept for the next time."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

from util_paths import ROOT


class Mpi:
    """An MPI with the mpi4py that fits."""

    def __init__(self, prefix: Path) -> None:
        self.mpiexec = prefix / "bin" / "mpiexec"
        self.libraries = prefix / "lib"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = self.libraries / version / "site-packages"


def installed(*packages: str) -> Mpi:
    prefix = ROOT / "build" / "started" / f"{packages[0]}-{sys.version_info.major}.{sys.version_info.minor}"
    done = prefix / ".installed"
    prefix.parent.mkdir(parents=True, exist_ok=True)
    # Two processes may run tests at the same time.
    with open(f"{prefix}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", prefix], check=True)
            pip = [sys.executable, "-m", "pip", "--python", prefix / "bin" / "python"]
            subprocess.run([*pip, "install", "-q", *packages], check=True, timeout=250)
            done.touch()
    return Mpi(prefix)
