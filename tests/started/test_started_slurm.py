"""A real Slurm of two nodes."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Slurm, why_not
from started_by import environment, places, rank, run

HERE = "import horovod.numpy as hvd; hvd.init(); print('alone', hvd.size())"
TWO_NODES = ["0/3 0/2 0/2", "1/3 1/2 0/1", "2/3 0/1 1/2"]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    # A short path: it is that of a Unix socket.
    with tempfile.TemporaryDirectory(prefix="hvd-slurm-") as directory:
        Path(directory).chmod(0o755)
        cluster = Slurm(Path(directory))
        yield cluster
        cluster.close()


def test_two_nodes(slurm: Slurm, tmp_path: Path) -> None:
    """The ranks find each other through the home directory."""
    env = environment(**slurm.variables, HOME=str(tmp_path))
    code, output = run(["srun", "-N", "2", "-n", "3", *rank("well", "pairs")], env)
    assert code == 0 and places(output) == TWO_NODES, output
    assert (tmp_path / ".horovod" / "meetings").stat().st_mode & 0o777 == 0o700
    assert not list(tmp_path.glob(".horovod/meetings/*")), "a file was left behind"


def test_two_nodes_with_a_key_file(slurm: Slurm, tmp_path: Path) -> None:
    """Nothing shared but the key; the first node is known from the list of nodes."""
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text("k" * 64)
    # This machine does not know the node by that name.
    env = environment(
        **slurm.variables,
        HOME="/nonexistent",
        HOROVOD_SECRET_KEY_FILE=str(key),
        HOROVOD_GLOO_RENDEZVOUS_ADDR="localhost",
    )
    code, output = run(["srun", "-N", "2", "-n", "2", *rank("well")], env)
    assert code == 0 and places(output) == ["0/2 0/1 0/2", "1/2 0/1 1/2"], output
    key.chmod(0o640)
    code, output = run(["srun", "-N", "2", "-n", "2", *rank("well")], env)
    assert code != 0 and f"chmod 600 {key}" in output, output


def test_an_allocation_is_not_a_job(slurm: Slurm) -> None:
    """One process, then a step, then mpirun, which starts its daemon on the other node by srun."""
    script = f'"{sys.executable}" -c "{HERE}"; srun -N 1 -n 2 "$@"'
    mpirun = shutil.which("mpirun")
    if mpirun:
        # Both nodes are this machine, and mpirun's ranks know them by the name of the machine.
        named = "sh -c 'HOROVOD_HOSTNAME=$SLURMD_NODENAME exec \"$@\"' sh"
        script += f'; {mpirun} --oversubscribe -np 3 --map-by node {named} "$@"'
    command = ["salloc", "-N", "2", "-n", "3", "sh", "-c", script, "sh", *rank("well")]
    code, output = run(command, environment(**slurm.variables))
    assert code == 0 and output.count("alone 1") == 1, output
    by_mpirun = ["0/3 0/2 0/2", "1/3 0/1 1/2", "2/3 1/2 0/1"] if mpirun else []
    assert places(output) == sorted(["0/2 0/2 0/1", "1/2 1/2 0/1", *by_mpirun]), output


def test_a_rank_that_dies(slurm: Slurm) -> None:
    code, output = run(["srun", "-N", "2", "-n", "3", *rank("die")], environment(**slurm.variables))
    assert code != 0 and "saw: rank 2" in output, output
