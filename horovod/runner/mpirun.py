"""``horovodrun --mpi``: the mpirun command line, for each kind of MPI.

All but find() are pure functions.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from horovod.runner.plan.environment import inherited
from horovod.runner.plan.hosts import HostInfo
from horovod.runner.ssh import SshOptions

_VERSION_SECONDS = 20.0
_MANY_HOSTS = 64  # from here on Open MPI starts its daemons from here rather than one by another
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The place of a launcher that itself runs inside a job is not its workers' place.
_PLACE = re.compile(
    r"HOROVOD_((LOCAL_|CROSS_)?(RANK|SIZE)|HOSTNAME|ADDRESSES|GLOO_RENDEZVOUS_(ADDR|PORT)|GLOO_IFACE)"
)
REMEDY = "install an MPI (Open MPI, MPICH, Intel MPI or Spectrum MPI) and mpi4py, or leave --mpi out"


class Flavour(Enum):
    """The MPI that an mpirun belongs to."""

    OPEN_MPI = "Open MPI"
    SPECTRUM = "IBM Spectrum MPI"
    INTEL = "Intel MPI"
    MPICH = "MPICH"


_MARKS = (
    ("IBM Spectrum MPI", Flavour.SPECTRUM),
    ("Open MPI", Flavour.OPEN_MPI),
    ("OpenRTE", Flavour.OPEN_MPI),
    ("Intel(R) MPI", Flavour.INTEL),
    ("MPICH", Flavour.MPICH),
    ("HYDRA", Flavour.MPICH),
)


@dataclass(frozen=True)
class MpirunJob:
    """What is to be started."""

    size: int
    hosts: Sequence[HostInfo]
    command: Sequence[str]
    env: Mapping[str, str]  # of mpirun, and so of the workers
    interfaces: str = ""  # a comma list
    ssh: SshOptions = field(default_factory=SshOptions)
    output: str | None = None
    timestamps: bool = False
    tcp: bool = False
    mpi_args: str = ""
    binding_args: str | None = None


def find(path: str | None) -> tuple[str, Flavour]:
    """The path of mpirun and its MPI. ValueError with the remedy if there is none that is known."""
    program = shutil.which("mpirun", path=path)
    if program is None:
        raise ValueError(f"--mpi: mpirun is not on PATH: {REMEDY}")
    try:
        result = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_VERSION_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"--mpi: {program} --version failed ({error}): {REMEDY}") from error
    text = result.stdout.decode(errors="replace")
    found = flavour(text)
    if found is None:
        raise ValueError(f"--mpi: {program} is of an unknown kind ({text.strip()[:100]!r}): {REMEDY}")
    return program, found


def flavour(version: str) -> Flavour | None:
    """The MPI whose mpirun says this about its version; None if it is unknown."""
    return next((kind for mark, kind in _MARKS if mark in version), None)


def environment(environ: Mapping[str, str], settings: Mapping[str, str], exclude: str = "") -> dict[str, str]:
    """The environment of mpirun. ``settings`` are the variables set by flags and config file."""
    passed = inherited(environ, exclude=exclude)
    env = {name: value for name, value in passed.items() if not _PLACE.fullmatch(name)}
    env.setdefault("HOROVOD_CPU_OPERATIONS", "mpi")
    return {**env, **settings, "HOROVOD_CONTROLLER": "mpi"}


def command_line(job: MpirunJob, program: str, kind: Flavour) -> list[str]:
    """The words of the command. ValueError if this kind of mpirun can't do it."""
    build = _hydra if kind in (Flavour.INTEL, Flavour.MPICH) else _open_mpi
    return [program, *build(job, kind), *shlex.split(job.mpi_args), *job.command]


def _open_mpi(job: MpirunJob, kind: Flavour) -> list[str]:
    hosts = ",".join(f"{host.hostname}:{host.slots}" for host in job.hosts)
    words = ["--allow-run-as-root", "--tag-output", "-np", str(job.size), "-H", hosts]
    if kind is Flavour.SPECTRUM:
        words += _binding(job, "-bind-to socket -map-by socket -rank-by core")
        words += ["-tcp"] if job.tcp else []
    else:
        # Open MPI 5 wants two dashes, 4 takes either.
        words += _binding(job, "--bind-to none --map-by slot")
        words += ["--mca", "pml", "ob1", "--mca", "btl", "^openib"]
    if len(job.hosts) >= _MANY_HOSTS:
        words += ["--mca", "plm_rsh_no_tree_spawn", "true"]
        words += ["--mca", "plm_rsh_num_concurrent", str(len(job.hosts))]
    if ssh := _ssh(job.ssh):
        words += ["--mca", "plm_rsh_args", ssh]
    if job.interfaces:
        words += ["--mca", "btl_tcp_if_include", job.interfaces]
        words += ["-x", f"NCCL_SOCKET_IFNAME={job.interfaces}"]
    if job.output is not None:
        words += ["--output-filename", job.output]
    if job.timestamps:
        words.append("--timestamp-output")
    for name in sorted(job.env):
        if _NAME.fullmatch(name) and not (job.interfaces and name == "NCCL_SOCKET_IFNAME"):
            words += ["-x", name]
    return words


def _hydra(job: MpirunJob, kind: Flavour) -> list[str]:
    slots = {host.slots for host in job.hosts}
    if len(slots) > 1:
        given = ", ".join(f"{host.hostname}:{host.slots}" for host in job.hosts)
        raise ValueError(f"{kind.value} needs the same number of slots on all hosts, got {given}")
    names = ",".join(host.hostname for host in job.hosts)
    words = ["-l", "-np", str(job.size), "-ppn", str(slots.pop()), "-hosts", names]
    words += _binding(job, "" if kind is Flavour.INTEL else "-bind-to none -map-by slot")
    if ssh := _ssh(job.ssh):
        words += ["-bootstrap=ssh", "-bootstrap-exec-args", ssh]
    if job.interfaces:
        if "," in job.interfaces:
            raise ValueError(f"{kind.value} uses one network interface, got {job.interfaces}")
        words += ["-iface", job.interfaces, "-genv", f"NCCL_SOCKET_IFNAME={job.interfaces}"]
    if job.output is not None:
        words += ["-outfile-pattern", job.output]
    return words


def _binding(job: MpirunJob, default: str) -> list[str]:
    return shlex.split(default if job.binding_args is None else job.binding_args)


def _ssh(options: SshOptions) -> str:
    words = [] if options.port is None else ["-p", str(options.port)]
    words += [] if options.identity_file is None else ["-i", options.identity_file]
    return shlex.join(words)
