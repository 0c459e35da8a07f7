"""MPI, if mpi4py is there: how many ranks it sees, and whether they are those that the launcher
tells.

mpi4py initialises MPI when it is imported and finalises it when the process ends, so that is done
only where nothing simpler works.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def load(must_be_loaded: bool = False) -> Any | None:
    """mpi4py's MPI module with MPI initialised; None if it can't be had.

    `must_be_loaded`: only if the program has it already, because under some launchers initialising
    MPI ends the process.
    """
    if must_be_loaded and "mpi4py.MPI" not in sys.modules:
        return None
    try:
        module: Any = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError, OSError):  # not installed, or without an MPI library
        return None
    return module if module.Is_initialized() and not module.Is_finalized() else None


def size() -> int | None:
    """The number of ranks according to MPI."""
    module = load()
    return None if module is None else int(module.COMM_WORLD.Get_size())


def name(module: Any) -> str:
    """The library that mpi4py has loaded, for messages."""
    return str(module.Get_library_version()).partition(",")[0].splitlines()[0].strip()


def fits(module: Any, rank: int, size: int) -> bool:
    """Whether MPI sees what the launcher tells; another MPI than its own sees a world of one."""
    world = module.COMM_WORLD
    return (int(world.Get_rank()), int(world.Get_size())) == (rank, size)
