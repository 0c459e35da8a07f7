"""Started by srun."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from horovod._bootstrap.identity.base import DiscoveryHints, Identity
from horovod._bootstrap.identity.slurm_lists import expand_counts, expand_nodes
from horovod._bootstrap.identity.variables import HOSTNAME, first_set, host_name, number
from horovod._bootstrap.identity.without_rendezvous import identity_of, job_of

_Item = TypeVar("_Item")

_SPECIAL_STEPS = 0xFFFFFFF0  # batch script, interactive shell and the like: not started by srun


class Slurm:
    """A script that merely runs inside of an allocation is a single process."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        if not in_a_step(environ):
            return None
        names = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID")
        # The step may be smaller than the allocation.
        nodes = first_set(environ, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
        hints = DiscoveryHints(
            "srun",
            "SLURM_PROCID",
            job=job_of(environ, *names),
            address=_expanded(environ, nodes, expand_nodes)[0] if nodes else "",
            address_from=nodes,
        )
        host = environ.get(HOSTNAME) or environ.get("SLURMD_NODENAME") or host_name(environ)
        size = first_set(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") or "SLURM_NTASKS"
        identity = identity_of(environ, "SLURM_PROCID", size, hints, host)
        return _with_local(identity, environ)


def in_a_step(environ: Mapping[str, str]) -> bool:
    """Whether srun has started this process."""
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID") or ""
    return "SLURM_PROCID" in environ and step.isascii() and step.isdigit() and int(step) < _SPECIAL_STEPS


def _with_local(identity: Identity, environ: Mapping[str, str]) -> Identity:
    name = first_set(environ, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    if identity.discovery is None or not name or "SLURM_LOCALID" not in environ:
        return identity
    counts = _expanded(environ, name, expand_counts)
    node = number(environ, "SLURM_NODEID", 0, "SLURM_PROCID is")
    # Only those of this step; the variable may be left over from the allocation.
    if sum(counts) != identity.size or node >= len(counts):
        return identity
    rank = number(environ, "SLURM_LOCALID", 0, "SLURM_PROCID is")
    if rank >= counts[node]:
        raise ValueError(f"SLURM_LOCALID={rank} does not fit {name}={environ[name]}, SLURM_NODEID={node}")
    return replace(identity, discovery=replace(identity.discovery, local=(rank, counts[node])))


def _expanded(environ: Mapping[str, str], name: str, expand: Callable[[str], list[_Item]]) -> list[_Item]:
    try:
        return expand(environ[name])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
