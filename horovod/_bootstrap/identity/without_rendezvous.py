"""What launchers without a rendezvous server have in common: they give a rank, not much more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from horovod._bootstrap.identity import variables
from horovod._bootstrap.identity.base import DiscoveryHints, Identity
from horovod._bootstrap.identity.variables import ADDRESS, PORT, host_name, rank_and_size


def identity_of(
    environ: Mapping[str, str], rank_name: str, size_name: str, hints: DiscoveryHints, host: str = ""
) -> Identity:
    """From two variables with rank and size; the user's own address and port beat the hints."""
    host = host or host_name(environ)
    rank, size = rank_and_size(environ, rank_name, size_name, f"{rank_name} is")
    if size == 1:
        return Identity(0, 1, 0, 1, 0, 1, host)
    if environ.get(ADDRESS):
        hints = replace(hints, address=environ[ADDRESS].strip(), address_from=ADDRESS)
    if environ.get(PORT):
        hints = replace(hints, port=variables.port(environ, f"{PORT} is"))
    return Identity(rank, size, 0, 1, 0, 1, host, discovery=hints)


def with_local(identity: Identity, environ: Mapping[str, str], rank_name: str, size_name: str) -> Identity:
    """Adds what the launcher tells about the ranks of this host, if anything."""
    if identity.discovery is None or not (rank_name in environ or size_name in environ):
        return identity
    given = rank_name if rank_name in environ else size_name
    rank, size = rank_and_size(environ, rank_name, size_name, f"{given} is")
    if size > identity.size:
        raise ValueError(f"{size_name}={size} is more than the job has: {identity.size}")
    return replace(identity, discovery=replace(identity.discovery, local=(rank, size)))


def job_of(environ: Mapping[str, str], *names: str) -> str:
    """What tells a job from others: those of the variables that are set."""
    return " ".join(f"{name}={environ[name]}" for name in names if environ.get(name))
