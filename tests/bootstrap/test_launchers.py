"""What other launchers leave in the environment, and what is wrong with it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from horovod._bootstrap import identity
from horovod._bootstrap.identity import DiscoveryHints, Identity, Launcher, detect
from horovod._bootstrap.identity.horovodrun import Horovodrun
from horovod._bootstrap.identity.launchers import LAUNCHERS
from horovod._bootstrap.identity.single_process import SingleProcess

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_ess_base_jobid": "77",
    "PMIX_NAMESPACE": "77",
    "PMIX_RANK": "2",
}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_PROCID": "4",
    "SLURM_NTASKS": "5",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "3,2",
    "SLURM_STEP_NODELIST": "node[07-08]",
    "SLURM_JOB_NODELIST": "node[01-08]",
    "SLURM_JOB_ID": "123",
    "SLURM_STEP_ID": "0",
    "SLURMD_NODENAME": "node08",
}
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "r",
}
KUBERNETES = {
    "JOB_COMPLETION_INDEX": "1",
    "HOROVOD_SIZE": "3",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "train-0.train",
}
PMIX = {"PMIX_RANK": "1", "HOROVOD_SIZE": "3", "PMIX_NAMESPACE": "x"}
ALL = {"Open MPI's mpirun": OPEN_MPI, "mpiexec": MPICH, "srun": SLURM, "torchrun": TORCHRUN}


def found(environ: dict[str, str]) -> tuple[Identity, DiscoveryHints]:
    identity = detect(environ)
    assert identity.discovery is not None and identity.rendezvous is None and identity.key is None
    return identity, identity.discovery


def test_every_launcher_is_asked_and_recognised() -> None:
    """As CONTRIBUTING says: a file with a class, its place in the list, an environment here."""
    files = {path.stem for path in Path(identity.__file__).parent.glob("*.py")}
    modules = [importlib.import_module(f"{identity.__name__}.{name}") for name in sorted(files)]
    classes = {
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and hasattr(each, "detect") and each is not Launcher
    }
    assert classes == {Horovodrun, *LAUNCHERS, SingleProcess}
    environments = [*ALL.values(), KUBERNETES, PMIX]
    asked = {next(each for each in LAUNCHERS if each.detect(environ)) for environ in environments}
    assert asked == set(LAUNCHERS)


@pytest.mark.parametrize("name", ALL)
def test_place(name: str) -> None:
    identity, hints = found(ALL[name])
    assert hints.launcher == name
    place = (identity.rank, identity.size, hints.local)
    assert place == {"srun": (4, 5, (1, 2)), "torchrun": (3, 4, (1, 2))}.get(name, (2, 4, (0, 2)))


def test_what_else_they_tell() -> None:
    identity, hints = found({**SLURM, "PMI_RANK": "4", "PMI_SIZE": "5"})  # srun --mpi=pmi2
    assert (identity.host, hints.address, hints.address_from) == (
        "node08",
        "node07",
        "SLURM_STEP_NODELIST",
    )
    assert "123" in hints.job and not hints.mpi and hints.port == 0
    assert found({**SLURM, "SLURM_STEP_ID": "1"})[1].job != hints.job
    identity, hints = found({**TORCHRUN, "HOROVOD_GLOO_RENDEZVOUS_PORT": "4000"})
    assert (hints.address, hints.port) == ("node1", 4000) and identity.host.endswith("/1")
    assert found(OPEN_MPI)[1].mpi and found(OPEN_MPI)[1].job and not found(MPICH)[1].job
    identity, hints = found({**KUBERNETES, "HOROVOD_HOSTNAME": "pod1"})
    assert (identity.rank, identity.size, identity.host) == (1, 3, "pod1")
    assert (hints.address, hints.port, hints.local) == ("train-0.train", 24500, None)


def test_who_decides() -> None:
    """The innermost launcher."""
    ours = {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"}
    for environ in ALL.values():
        assert detect({**environ, **ours}).discovery is None
    assert found({**SLURM, **OPEN_MPI})[1].launcher == "Open MPI's mpirun"
    assert found({**SLURM, **MPICH})[1].launcher == "mpiexec"
    assert found({**SLURM, **OPEN_MPI, **TORCHRUN})[1].launcher == "torchrun"
    assert found({**OPEN_MPI, "JOB_COMPLETION_INDEX": "0", "HOROVOD_SIZE": "9"})[0].size == 4
    assert found({"PMIX_RANK": "1", "HOROVOD_SIZE": "2"})[1].launcher == "a PMIx launcher"


@pytest.mark.parametrize(
    "environ",
    [
        {name: value for name, value in SLURM.items() if name not in ("SLURM_STEP_ID", "SLURM_PROCID")},
        {name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"},  # the script of sbatch
        {**SLURM, "SLURM_STEP_ID": str(0xFFFFFFFA)},  # the shell of salloc
        {**SLURM, "SLURM_STEP_ID": "batch"},
        {"RANK": "3", "WORLD_SIZE": "4"},  # too common to mean torchrun
        {"JOB_COMPLETION_INDEX": "1"},  # an indexed Job of independent pods
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
    ],
)
def test_a_single_process(environ: dict[str, str]) -> None:
    identity = detect(environ)
    assert (identity.rank, identity.size, identity.discovery) == (0, 1, None)


def test_tasks_of_the_allocation_are_not_those_of_the_step() -> None:
    environ = {**SLURM, "SLURM_TASKS_PER_NODE": "4(x8)"}
    del environ["SLURM_STEP_TASKS_PER_NODE"]
    assert found(environ)[1].local is None


@pytest.mark.parametrize(
    ("environ", "name", "value"),
    [
        (OPEN_MPI, "OMPI_COMM_WORLD_RANK", "4"),
        (OPEN_MPI, "OMPI_COMM_WORLD_RANK", "-1"),
        (OPEN_MPI, "OMPI_COMM_WORLD_SIZE", ""),
        (OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE", "5"),
        (OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK", "2"),
        (MPICH, "PMI_SIZE", "two"),
        (MPICH, "MPI_LOCALNRANKS", "0"),
        (SLURM, "SLURM_PROCID", "5"),
        (SLURM, "SLURM_LOCALID", "2"),
        (SLURM, "SLURM_STEP_NODELIST", "node[1"),
        (SLURM, "SLURM_STEP_TASKS_PER_NODE", "2x3"),
        (TORCHRUN, "WORLD_SIZE", "3"),
        (TORCHRUN, "HOROVOD_GLOO_RENDEZVOUS_PORT", "65536"),
        (KUBERNETES, "JOB_COMPLETION_INDEX", "3"),
        (KUBERNETES, "HOROVOD_SIZE", "0"),
        (KUBERNETES, "HOROVOD_GLOO_RENDEZVOUS_ADDR", ""),
    ],
)
def test_wrong_values(environ: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        detect({**environ, name: value})


def test_local_ranks_may_be_in_another_order() -> None:
    """As Open MPI 5 gives them when there are more ranks than cores."""
    found = detect({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"})
    assert found.discovery is not None and found.discovery.local == (3, 4)
