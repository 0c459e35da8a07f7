"""``horovodrun --jsrun``: LSF's launcher of MPI jobs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from horovod.common.util import mpi_built
from horovod.runner import lsf
from horovod.runner.mpirun import MpirunJob
from horovod.runner.payload import Payload
from horovod.runner.plan.hosts import HostInfo, SlotInfo

_SIBLINGS = "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list"


@dataclass(frozen=True)
class JsrunJob:
    """What is to be started, and where."""

    job: MpirunJob
    slots: Sequence[SlotInfo]
    cores: Sequence[HostInfo]  # LSF's slots of all hosts


def wanted(asked: bool, otherwise: bool, environ: Mapping[str, str]) -> bool:
    """Whether jsrun is to start the job: ``asked`` for, or inside of LSF if nothing ``otherwise``
    was said and there are jsrun and MPI. ValueError if it is asked for and can't be used."""
    if not asked:
        ready = lsf.inside(environ) and _find(environ) is not None
        return ready and not otherwise and Payload.VARIABLE not in environ and mpi_built()
    if not lsf.inside(environ):
        raise ValueError("--jsrun: this is no job of LSF (LSB_JOBID is not set): submit it with bsub")
    if _find(environ) is None:
        raise ValueError("--jsrun: jsrun is not on PATH: use --gloo, which starts the processes through ssh")
    if not mpi_built():
        raise ValueError(
            "--jsrun: mpi4py, or the MPI library that it needs, is missing: install it or use --gloo"
        )
    return True


def execute(what: JsrunJob, dry_run: bool, verbose: bool) -> None:
    """Replaces this process by jsrun; returns after showing the command if that is all. OSError."""
    text = rank_file(what, _threads_per_core())
    if dry_run:
        print(shlex.join(command_line(what.job, "<rank file>")), text, sep="\n", end="")
        return
    path = ""
    if what.job.binding_args is None:
        # Read by jsrun after this process has become it, so nobody is left to remove it but LSF.
        descriptor, path = tempfile.mkstemp(prefix="horovod-ranks-")
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    words = command_line(what.job, path)
    if verbose:
        print(f"horovodrun: {shlex.join(words)}", file=sys.stderr, flush=True)
    os.execve(_find(what.job.env) or words[0], words, dict(what.job.env))


def command_line(job: MpirunJob, ranks: str) -> list[str]:
    """The words of the command. ``ranks`` is the rank file, unless the binding is the user's."""
    words = ["jsrun"]
    if job.binding_args is None:
        words += ["--erf_input", ranks]
    else:
        words += shlex.split(job.binding_args)
    if job.output is not None:
        words += ["--stdio_stderr", job.output, "--stdio_stdout", job.output]
    further = " ".join([*(["-tcp"] if job.tcp else []), *([job.mpi_args] if job.mpi_args else [])])
    if further:
        words += ["--smpiargs", further]
    return [*words, *job.command]


def rank_file(what: JsrunJob, threads_per_core: int) -> str:
    """Each rank gets an equal share of its host's processors, and sees all devices and memory."""
    cores = {host.hostname: host.slots for host in what.cores}
    lines = ["overlapping_rs: allow", "cpu_index_using: logical", ""]
    for slot in what.slots:
        share = cores.get(slot.hostname, slot.local_size) * threads_per_core // slot.local_size
        if share == 0:
            raise ValueError(
                f"{slot.hostname} has fewer processors than the {slot.local_size} processes that it is to "
                "run: ask for fewer with -np or bind them with --binding-args"
            )
        first = slot.local_rank * share
        cpus = f"{{{first}-{first + share - 1}}}"
        lines.append(f"rank: {slot.rank}: {{ hostname: {slot.hostname}; cpu: {cpus} ; gpu: * ; mem: * }}")
    return "\n".join(lines) + "\n"


def _find(environ: Mapping[str, str]) -> str | None:
    return shutil.which("jsrun", path=environ.get("PATH"))


def _threads_per_core() -> int:
    """Of this machine, which in such clusters is like the others.

    LSF tells cores, jsrun counts threads.
    """
    try:
        with open(_SIBLINGS, encoding="ascii") as file:
            parts = [part.partition("-") for part in file.read().strip().split(",")]
    except OSError:
        return 1
    return sum(int(last or first) - int(first) + 1 for first, _, last in parts)
