"""Which of the ways to start a job is taken, for tools that bring their own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from horovod.common.util import mpi_built
from horovod.runner import jsrun, mpirun


def is_gloo_used(
    use_gloo: bool | None = None, use_mpi: bool | None = None, use_jsrun: bool | None = None
) -> bool:
    """Whether the launcher itself starts the processes, rather than mpirun or jsrun."""
    return bool(use_gloo) or not (use_mpi or jsrun.wanted(bool(use_jsrun), False, os.environ))


def run_controller(
    use_gloo: bool | None,
    gloo_run: Callable[[], Any],
    use_mpi: bool | None,
    mpi_run: Callable[[], Any],
    use_jsrun: bool | None,
    js_run: Callable[[], Any],
    verbosity: int | None = None,
) -> None:
    """Calls one of three functions: the one asked for, else ``gloo_run``, or ``js_run`` in a job of
    LSF.

    ValueError if what is asked for can't be used. (The original took ``mpi_run`` by default.)
    """
    if is_gloo_used(use_gloo, use_mpi, use_jsrun):
        gloo_run()
    elif not use_mpi:
        js_run()
    elif mpi_built():
        mpi_run()
    else:
        raise ValueError(f"--mpi: mpi4py, or the MPI library that it needs, is missing: {mpirun.REMEDY}")
