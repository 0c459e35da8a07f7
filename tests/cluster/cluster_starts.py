"""Two ranks on host1 and host2, by every way of starting a job: what each launcher leaves in the environment.

Only horovodrun is there in person; of the others, their variables are. mpirun, srun and torchrun pass rank
0's endpoint on through a file in the common home directory, the rest through an address that the user names.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cluster_hosts import Hosts
from cluster_job import ClusterJob
from util_paths import ROOT, SUPPORT

RANK = SUPPORT / "started_rank.py"
PORT = 24500  # of the rendezvous, where the user has to name it
KEY = "5ec7e7" * 10 + "5ec7"
_FOREIGN = re.compile(r"(OMPI|PMIX?|SLURM|HOROVOD|TORCHELASTIC)_.*|RANK|WORLD_SIZE|JOB_COMPLETION_INDEX")
# What a user has who sets the variables by hand: a rendezvous server in a program of his own.
_SERVER = """
import sys
from horovod._bootstrap.rendezvous.server import RendezvousServer
with RendezvousServer(bytes.fromhex(sys.argv[1]), sys.argv[2], int(sys.argv[3])):
    print("ready", flush=True)
    sys.stdin.read()
"""
_PATIENT = {"HOROVOD_START_TIMEOUT": "60", "HOROVOD_GLOO_TIMEOUT_SECONDS": "60"}
Environment = dict[str, str]


# By launcher; the names in braces are those of _environment().
_SRUN = """
SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID={rank} SLURM_NTASKS=2 SLURM_NODEID={rank} SLURM_LOCALID=0
SLURM_STEP_NODELIST=host[1-2] SLURM_STEP_TASKS_PER_NODE=1(x2) SLURMD_NODENAME={host}
"""
_MPIRUN = """
OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=job-7
OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1
"""
_MPIEXEC = "PMI_RANK={rank} PMI_SIZE=2 PMI_JOBID=7 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1"
_PMIX = "PMIX_RANK={rank} HOROVOD_SIZE=2 PMIX_NAMESPACE=job-7"
_TORCHRUN = """
TORCHELASTIC_RUN_ID=7 RANK={rank} WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1
GROUP_RANK={rank} GROUP_WORLD_SIZE=2 MASTER_ADDR={address} MASTER_PORT=29500
"""
_SECRET = "_HOROVOD_SECRET_KEY={key}"
_PORT = "HOROVOD_GLOO_RENDEZVOUS_PORT={port}"
_ADDRESS = "HOROVOD_GLOO_RENDEZVOUS_ADDR={address}"
_KUBERNETES = f"JOB_COMPLETION_INDEX={{rank}} HOROVOD_SIZE=2 {_ADDRESS} {_SECRET}"
_BY_HAND = f"""
HOROVOD_RANK={{rank}} HOROVOD_SIZE=2 HOROVOD_LOCAL_RANK=0 HOROVOD_LOCAL_SIZE=1
HOROVOD_CROSS_RANK={{rank}} HOROVOD_CROSS_SIZE=2 HOROVOD_HOSTNAME={{host}}
HOROVOD_ADDRESSES=172.17.0.1,192.0.2.{{number}} {_ADDRESS} {_PORT} {_SECRET}
"""


def _environment(variables: str, rank: int, address: str) -> Environment:
    """What a rank finds, on host1 or host2; `address` is that of rank 0."""
    text = variables.format(
        rank=rank, number=rank + 1, host=f"host{rank + 1}", address=address, port=PORT, key=KEY
    )
    return dict(word.split("=", 1) for word in text.split())


HOROVODRUN = "horovodrun"
_HAND = "by hand"
# Rank 0 tells its addresses by itself, or the user names one.
FOUND = {"srun": _SRUN, "mpirun": _MPIRUN, "mpiexec": _MPIEXEC, "pmix": _PMIX, "torchrun": _TORCHRUN}
NAMED = {
    "kubernetes": _KUBERNETES,
    "torchrun with a secret": f"{_TORCHRUN} {_PORT} {_SECRET}",
    _HAND: _BY_HAND,
}


class Started:
    """The processes of a job: rank 0 and rank 1, or horovodrun."""

    def __init__(self, *processes: subprocess.Popen[str]) -> None:
        self.processes = processes

    def outcome(self, last: int = 2) -> tuple[list[int], str]:
        """Exit codes and output of the ``last`` of them."""
        text = ""
        chosen = self.processes[-last:]
        for process in chosen:
            text += "".join(filter(None, process.communicate(timeout=60)))
        return [process.returncode for process in chosen], text


@contextlib.contextmanager
def started(
    hosts: Hosts, way: str, home: Path, address: str = "host1", names: Path | None = None
) -> Iterator[Started]:
    """Starts the job. ``address`` is what rank 1's user calls rank 0, ``names`` the /etc/hosts of host2."""
    home.mkdir(exist_ok=True)
    (home / "mpi4py.py").write_text("raise ImportError\n")  # hides one that may be installed
    processes: list[subprocess.Popen[str]] = []
    try:
        if way == HOROVODRUN:
            words = ["-np", "2", "-H", "host1,host2", "--start-timeout", "60"]
            processes.append(ClusterJob(hosts, *words, sys.executable, RANK, "well").process)
        else:
            if way == _HAND:
                words = [sys.executable, "-c", _SERVER, KEY, "192.0.2.1", str(PORT)]
                server = _start(hosts, 1, home, {}, words)
                processes.append(server)
                assert server.stdout is not None and server.stdout.readline() == "ready\n"
            variables = {**FOUND, **NAMED}[way]
            rank = [sys.executable, str(RANK), "well"]
            processes.append(_start(hosts, 1, home, _environment(variables, 0, "host1"), rank))
            named = address if way in NAMED else "host1"
            mounts = [] if names is None else [(names, Path("/etc/hosts"))]
            processes.append(_start(hosts, 2, home, _environment(variables, 1, named), rank, mounts))
        yield Started(*processes[-2:])
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _start(
    hosts: Hosts,
    host: int,
    home: Path,
    env: Environment,
    words: list[str],
    mounts: list[tuple[Path, Path]] | None = None,
) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not _FOREIGN.fullmatch(name)}
    return subprocess.Popen(
        hosts.words(host, *words, mounts=mounts or ()),
        env={**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{home}", "HOME": str(home), **_PATIENT, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
