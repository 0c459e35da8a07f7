"""A rank is killed while MPI carries the data: the others raise or mpirun ends them, and nobody remains."""

import time
from pathlib import Path

import mpi_setup
import pytest

PROGRAM = Path(__file__).with_name("program_killed.py")


def alive(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("name", "apart"), [("debian", False), ("mpich", True)])
def test_killed_rank(name: str, apart: bool, tmp_path: Path) -> None:
    words = [tmp_path, "apart"] if apart else [tmp_path]
    outcome = mpi_setup.get(name).run(2, PROGRAM, *words, timeout=120)
    assert outcome.code != 0, outcome.output
    pids = [entry.name for entry in tmp_path.iterdir()]
    assert len(pids) == 2, outcome.output
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, f"{pids} remain"
        time.sleep(0.05)
    if apart:
        raised = "".join(entry.read_text() for entry in tmp_path.iterdir())
        assert "rank 0 raises: rank 1 " in raised and "signal 9" in raised, (raised, outcome.output)
