"""Being started by others than horovodrun: one class for each launcher, by what it tells its processes.

None of these runs a rendezvous server, so what they give is an identity with a Meeting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from horovod._bootstrap import mpi_world
from horovod._bootstrap.identity import (
    ADDRESS,
    HOSTNAME,
    PORT,
    SIZE,
    Identity,
    Meeting,
    WayOfStarting,
    host_name,
)
from horovod._bootstrap.nodelist import expand_counts, expand_nodes

_Item = TypeVar("_Item")

KUBERNETES_PORT = 24500
_SPECIAL_STEPS = 0xFFFFFFF0  # batch script, interactive shell and the like: not started by srun


class Torchrun:
    """torchrun, also under srun or mpirun: what it starts is its own."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        if "TORCHELASTIC_RUN_ID" not in environ or "RANK" not in environ:
            return None
        names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
        meeting = Meeting(
            "torchrun",
            "TORCHELASTIC_RUN_ID",
            job=_job(environ, *names),
            address=environ.get("MASTER_ADDR", ""),
            address_from="MASTER_ADDR",
        )
        host = host_name(environ)
        # torchrun may be run twice on one machine, and LOCAL_RANK then counts from 0 twice.
        if environ.get("GROUP_WORLD_SIZE", "1") != "1" and HOSTNAME not in environ:
            host += f"/{environ.get('GROUP_RANK', '')}"
        identity = _identity(environ, "RANK", "WORLD_SIZE", meeting, host)
        return _with_local(identity, environ, "LOCAL_RANK", "LOCAL_WORLD_SIZE")


class OpenMpi:
    """mpirun of Open MPI."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        rank = "OMPI_COMM_WORLD_RANK"
        if rank not in environ:
            return None
        job = _job(environ, "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri")
        meeting = Meeting("Open MPI's mpirun", rank, job=job, mpi=True)
        identity = _identity(environ, rank, "OMPI_COMM_WORLD_SIZE", meeting)
        return _with_local(identity, environ, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")


class Mpich:
    """mpiexec of MPICH or Intel MPI, and others that speak PMI."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        rank = "PMI_RANK"
        # srun --mpi=pmi2 sets these too, but knows more than it tells in them.
        if rank not in environ or ("MPI_LOCALRANKID" not in environ and _slurm_step(environ)):
            return None
        meeting = Meeting("mpiexec", rank, job=_job(environ, "PMI_JOBID"), mpi=True)
        identity = _identity(environ, rank, "PMI_SIZE", meeting)
        return _with_local(identity, environ, "MPI_LOCALRANKID", "MPI_LOCALNRANKS")


class Slurm:
    """srun. A script that merely runs inside of an allocation is a single process."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        step = _slurm_step(environ)
        if not step:
            return None
        names = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID")
        # The step may be smaller than the allocation.
        nodes = _first_set(environ, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
        meeting = Meeting(
            "srun",
            "SLURM_PROCID",
            job=_job(environ, *names),
            address=_expanded(environ, nodes, expand_nodes)[0] if nodes else "",
            address_from=nodes,
        )
        host = environ.get(HOSTNAME) or environ.get("SLURMD_NODENAME") or host_name(environ)
        size = _first_set(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") or "SLURM_NTASKS"
        identity = _identity(environ, "SLURM_PROCID", size, meeting, host)
        return _with_slurm_local(identity, environ)


class Pmix:
    """A launcher that speaks PMIx and tells nothing but the rank."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        rank = "PMIX_RANK"
        if rank not in environ:
            return None
        if SIZE not in environ:
            size = mpi_world.size()
            if size is None:
                raise ValueError(
                    f"{rank} is set, but nothing tells the number of processes: install mpi4py, or set {SIZE}"
                )
            environ = {**environ, SIZE: str(size)}
        meeting = Meeting("a PMIx launcher", rank, job=_job(environ, "PMIX_NAMESPACE"), mpi=True)
        return _identity(environ, rank, SIZE, meeting)


class Kubernetes:
    """A pod of an indexed Job that is told the number of pods; without, each pod is on its own."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        rank = "JOB_COMPLETION_INDEX"
        if rank not in environ or SIZE not in environ:
            return None
        meeting = Meeting("Kubernetes", rank, port=KUBERNETES_PORT)
        identity = _identity(environ, rank, SIZE, meeting)
        if identity.size > 1 and not environ.get(ADDRESS):
            raise ValueError(
                f"{ADDRESS} is not set: a Job of {identity.size} pods needs the name of that with index 0, "
                "<name of the Job>-0.<name of the headless Service>"
            )
        return identity


# Torchrun is started by others but not the other way round. mpirun starts its daemons by srun, so their
# processes have Slurm's variables too.
OTHERS: tuple[type[WayOfStarting], ...] = (Torchrun, OpenMpi, Mpich, Slurm, Pmix, Kubernetes)


def _identity(
    environ: Mapping[str, str], rank_name: str, size_name: str, meeting: Meeting, host: str = ""
) -> Identity:
    host = host or host_name(environ)
    size = _whole(environ, size_name, 1, rank_name)
    rank = _whole(environ, rank_name, 0, rank_name)
    if rank >= size:
        raise ValueError(f"{rank_name}={rank} must be below {size_name}={size}")
    if size == 1:
        return Identity(0, 1, 0, 1, 0, 1, host)
    if environ.get(ADDRESS):
        meeting = replace(meeting, address=environ[ADDRESS].strip(), address_from=ADDRESS)
    if environ.get(PORT):
        port = _whole(environ, PORT, 1, PORT)
        if port > 65535:
            raise ValueError(f"{PORT}={port} must be a TCP port, at most 65535")
        meeting = replace(meeting, port=port)
    return Identity(rank, size, 0, 1, 0, 1, host, meeting=meeting)


def _with_local(identity: Identity, environ: Mapping[str, str], rank_name: str, size_name: str) -> Identity:
    """What the launcher tells about the ranks of this host, if anything."""
    if identity.meeting is None or not (rank_name in environ or size_name in environ):
        return identity
    size = _whole(environ, size_name, 1, rank_name)
    rank = _whole(environ, rank_name, 0, size_name)
    if rank >= size:
        raise ValueError(f"{rank_name}={rank} must be below {size_name}={size}")
    if size > identity.size:
        raise ValueError(f"{size_name}={size} is more than the job has: {identity.size}")
    return replace(identity, meeting=replace(identity.meeting, local=(rank, size)))


def _with_slurm_local(identity: Identity, environ: Mapping[str, str]) -> Identity:
    name = _first_set(environ, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    if identity.meeting is None or not name or "SLURM_LOCALID" not in environ:
        return identity
    counts = _expanded(environ, name, expand_counts)
    node = _whole(environ, "SLURM_NODEID", 0, "SLURM_PROCID")
    # Only those of this step; the variable may be left over from the allocation.
    if sum(counts) != identity.size or node >= len(counts):
        return identity
    rank = _whole(environ, "SLURM_LOCALID", 0, "SLURM_PROCID")
    if rank >= counts[node]:
        raise ValueError(f"SLURM_LOCALID={rank} does not fit {name}={environ[name]}, SLURM_NODEID={node}")
    return replace(identity, meeting=replace(identity.meeting, local=(rank, counts[node])))


def _slurm_step(environ: Mapping[str, str]) -> str:
    """The number of the step that srun started this process in; empty outside of one."""
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID") or ""
    started = "SLURM_PROCID" in environ and step.isascii() and step.isdigit() and int(step) < _SPECIAL_STEPS
    return step if started else ""


def _expanded(environ: Mapping[str, str], name: str, expand: Callable[[str], list[_Item]]) -> list[_Item]:
    try:
        return expand(environ[name])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _job(environ: Mapping[str, str], *names: str) -> str:
    return " ".join(f"{name}={environ[name]}" for name in names if environ.get(name))


def _first_set(environ: Mapping[str, str], *names: str) -> str:
    return next((name for name in names if environ.get(name)), "")


def _whole(environ: Mapping[str, str], name: str, smallest: int, because: str) -> int:
    value = environ.get(name, "").strip()
    if not value:
        raise ValueError(f"{name} is not set, but {because} is")
    if not (value.isascii() and value.isdigit()) or int(value) < smallest:
        raise ValueError(f"{name}={value!r} must be a whole number, {smallest} or more")
    return int(value)
