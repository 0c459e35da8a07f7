"""What other launchers leave in the environment, and what is wrong with it."""

from __future__ import annotations

import pytest

from horovod._bootstrap.identity import Identity, Meeting, detect

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
ALL = {"Open MPI's mpirun": OPEN_MPI, "mpiexec": MPICH, "srun": SLURM, "torchrun": TORCHRUN}


def found(environ: dict[str, str]) -> tuple[Identity, Meeting]:
    identity = detect(environ)
    assert identity.meeting is not None and identity.rendezvous is None and identity.key is None
    return identity, identity.meeting


@pytest.mark.parametrize("name", ALL)
def test_place(name: str) -> None:
    identity, meeting = found(ALL[name])
    assert meeting.launcher == name
    place = (identity.rank, identity.size, meeting.local)
    assert place == {"srun": (4, 5, (1, 2)), "torchrun": (3, 4, (1, 2))}.get(name, (2, 4, (0, 2)))


def test_what_else_they_tell() -> None:
    identity, meeting = found({**SLURM, "PMI_RANK": "4", "PMI_SIZE": "5"})  # srun --mpi=pmi2
    assert (identity.host, meeting.address, meeting.address_from) == (
        "node08",
        "node07",
        "SLURM_STEP_NODELIST",
    )
    assert "123" in meeting.job and not meeting.mpi and meeting.port == 0
    assert found({**SLURM, "SLURM_STEP_ID": "1"})[1].job != meeting.job
    identity, meeting = found({**TORCHRUN, "HOROVOD_GLOO_RENDEZVOUS_PORT": "4000"})
    assert (meeting.address, meeting.port) == ("node1", 4000) and identity.host.endswith("/1")
    assert found(OPEN_MPI)[1].mpi and found(OPEN_MPI)[1].job and not found(MPICH)[1].job
    identity, meeting = found({**KUBERNETES, "HOROVOD_HOSTNAME": "pod1"})
    assert (identity.rank, identity.size, identity.host) == (1, 3, "pod1")
    assert (meeting.address, meeting.port, meeting.local) == ("train-0.train", 24500, None)


def test_who_decides() -> None:
    """The innermost launcher."""
    ours = {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"}
    for environ in ALL.values():
        assert detect({**environ, **ours}).meeting is None
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
    assert (identity.rank, identity.size, identity.meeting) == (0, 1, None)


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
    assert found.meeting is not None and found.meeting.local == (3, 4)
