"""What the environment tells about a process, without Horovod being initialised."""

from __future__ import annotations

import os
from collections.abc import Mapping

from horovod.runner.kubexec import SCRIPT as KUBEFLOW_MPI_EXEC
from horovod.runner.plan.environment import inherited

__all__ = ["KUBEFLOW_MPI_EXEC", "get_env_rank_and_size", "is_exportable"]

_PAIRS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def get_env_rank_and_size(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """The rank and size that horovodrun or an mpirun has set, (0, 1) if none of them has.

    RuntimeError if only one of the two is there, or if they are not numbers. srun, torchrun and
    Kubernetes are for ``hvd.init()`` to find out.
    """
    environ = os.environ if environ is None else environ
    for rank_name, size_name in _PAIRS:
        rank, size = environ.get(rank_name), environ.get(size_name)
        if rank is None and size is None:
            continue
        if rank is None or size is None:
            given, missing = (rank_name, size_name) if size is None else (size_name, rank_name)
            raise RuntimeError(f"{given} is set, but {missing} is not: set both or neither")
        try:
            return int(rank), int(size)
        except ValueError:
            text = f"{rank_name}={rank!r} and {size_name}={size!r} must be whole numbers"
            raise RuntimeError(text) from None
    return 0, 1


def is_exportable(name: str) -> bool:
    """Whether a variable of the launcher is passed on to processes on other hosts."""
    return bool(inherited({name: ""}, remote=True))
