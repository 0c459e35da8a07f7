"""mpirun and mpiexec of the MPIs that people have, on one host."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from started_by import environment, places, rank, run
from started_mpis import Mpi
from util_paths import ROOT

ONE_HOST = [f"{number}/2 {number}/2 0/1" for number in range(2)]


def words(mpirun: str, np: int) -> list[str]:
    return [mpirun, "--oversubscribe", "-np", str(np)]


def test_open_mpi_of_the_system(mpirun: str, tmp_path: Path) -> None:
    code, output = run([*words(mpirun, 4), *rank("well", "pairs")], environment(HOME=str(tmp_path)))
    assert code == 0, output
    assert places(output) == [f"{number}/4 {number}/4 0/1" for number in range(4)]
    assert "with mpi4py" not in output
    assert not list(tmp_path.glob(".horovod/meetings/*")), "a file was left behind"


def test_the_example(mpirun: str) -> None:
    code, output = run(
        [*words(mpirun, 2), sys.executable, ROOT / "examples" / "numpy" / "digits.py", "--epochs", "2"],
        environment(),
    )
    assert code == 0 and "the same bits on both ranks" in output, output


def test_open_mpi_5(open_mpi_5: Mpi) -> None:
    command = [open_mpi_5.mpiexec, "--oversubscribe", "-n", "2"]
    code, output = run([*command, *rank("well")], environment(path=str(open_mpi_5.packages)))
    assert code == 0 and places(output) == ONE_HOST, output


def test_mpich_behind_a_shell(mpich: Mpi) -> None:
    """What the ranks have in common is then their grandparent."""
    shell = ["sh", "-c", '"$@"; exit $?', "sh", *rank("well")]
    code, output = run([mpich.mpiexec, "-n", "2", *shell], environment())
    assert code == 0 and places(output) == ONE_HOST, output


@pytest.mark.parametrize("which", ["open_mpi_5", "mpich"])
def test_notice_through_mpi(which: str, request: pytest.FixtureRequest) -> None:
    """As on several hosts: the launcher does not tell that all ranks are on this one."""
    mpi = request.getfixturevalue(which)
    hidden = [f"--unset={name}" for name in ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK")]
    hidden += [f"--unset={name}" for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")]
    oversubscribe = ["--oversubscribe"] if which == "open_mpi_5" else []
    command = [mpi.mpiexec, *oversubscribe, "-n", "2", "env", *hidden, *rank("well", "pairs")]
    # There may be another MPI in the system.
    env = environment(path=str(mpi.packages), LD_LIBRARY_PATH=str(mpi.libraries))
    code, output = run(command, env)
    assert code == 0 and places(output) == ONE_HOST, output
    assert output.count("with mpi4py") == 2


def test_mpi_without_what_it_takes(mpich: Mpi) -> None:
    """PMI without a job's name, and no mpi4py: the message says what to do, at once."""
    hidden = [f"--unset={name}" for name in ("MPI_LOCALRANKID", "MPI_LOCALNRANKS")]
    patient = environment(HOROVOD_START_TIMEOUT="1000")
    code, output = run([mpich.mpiexec, "-n", "2", "env", *hidden, *rank("well")], patient)
    assert code != 0
    assert (
        "install the mpi4py that fits" in output
        and "HOROVOD_SECRET_KEY_FILE" in output
        and "horovodrun" in output
    )


def test_a_rank_that_dies(mpirun: str) -> None:
    code, output = run([*words(mpirun, 3), *rank("die")], environment())
    assert code != 0
    assert "saw: rank 2" in output and "signal 9" in output, output


def test_a_rank_that_does_not_come(mpirun: str) -> None:
    code, output = run([*words(mpirun, 3), *rank("absent")], environment(HOROVOD_START_TIMEOUT="8"))
    assert code != 0
    assert re.search("only 2 of 3 ranks came within [1-8] s; missing: rank 2", output), output
