"""The collectives of the conformance suite with MPI carrying the data, over three MPIs."""

from pathlib import Path

import mpi_setup
import pytest

CHECKS = Path(__file__).parents[1] / "numpy" / "checks_conformance.py"


@pytest.mark.parametrize(
    ("name", "np"), [("debian", 2), ("debian", 3), ("debian", 4), ("openmpi", 2), ("mpich", 2), ("mpich", 3)]
)
def test_conformance(name: str, np: int) -> None:
    mpi_setup.get(name).run_checks(np, CHECKS, HOROVOD_DYNAMIC_PROCESS_SETS="1")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "np"), [("mpich", 4), ("openmpi", 3), ("debian", 5)])
def test_conformance_of_more_ranks(name: str, np: int) -> None:
    mpi_setup.get(name).run_checks(np, CHECKS, timeout=250, HOROVOD_DYNAMIC_PROCESS_SETS="1")
