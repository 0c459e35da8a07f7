"""How the ranks of a job learn where its first rank listens, chosen by what all of them know."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from horovod._bootstrap import mpi_world
from horovod._bootstrap.discovery.endpoint import RendezvousEndpoint
from horovod._bootstrap.discovery.fixed_address import (
    KEY_FILE,
    FixedAddress,
    checked_secret,
    derived_key,
    derived_ports,
    read_key_file,
)
from horovod._bootstrap.discovery.launcher_process import launcher_process
from horovod._bootstrap.discovery.mpi_message import MpiMessage
from horovod._bootstrap.discovery.network_file import NetworkFile
from horovod._bootstrap.discovery.shared_file import (
    NAME_PREFIX,
    SharedFile,
    host_directories,
    local_directories,
    shared_directory,
)
from horovod._bootstrap.identity import DiscoveryHints, Identity
from horovod._bootstrap.identity.variables import ADDRESS, SECRET
from horovod._net.handshake import KEY_BYTES

REMEDY = (
    "install the mpi4py that fits if MPI started the job, or name the host of rank 0 in "
    f"{ADDRESS} and a file with a secret of yours, the same on all hosts, in {KEY_FILE}, or use horovodrun"
)


class Discovery(Protocol):
    """How an endpoint gets from the first rank to the others."""

    def publish(self, endpoint: RendezvousEndpoint) -> AbstractContextManager[None]:
        """The first rank: passes the endpoint on."""

    def poll(self) -> RendezvousEndpoint | None:
        """The others: what is there by now. ValueError if it is of no use."""

    def waiting_for(self) -> str:
        """What has not happened while poll() finds nothing."""

    def close(self) -> None: ...


def choose(
    launched: Identity,
    hints: DiscoveryHints,
    one_host: bool,
    ranks: Sequence[int],
    scope: str,
    deadline: float,
) -> Discovery:
    """All ranks must come to the same conclusion.

    ValueError if nothing can work, with the remedy.
    """
    if one_host:
        about = (hints.job, launcher_process(hints.marker), scope)
        return SharedFile(host_directories(), _name(*about))
    secret = secret_of(os.environ)
    explicit = hints.address_from == ADDRESS
    if explicit and secret is None:
        raise ValueError(
            f"{ADDRESS} is set, but no key is: put the same secret into a file on every host (openssl rand "
            f"-hex 32 > file; chmod 600 file) and name it in {KEY_FILE}"
        )
    if secret is not None and hints.address:
        if ranks[0] != 0:
            raise ValueError(
                f"hvd.init(comm={list(ranks)}): with {KEY_FILE} rank 0 must be the first of the list"
            )
        key = derived_key(secret, hints.job, scope)
        ports = (hints.port,) if hints.port else derived_ports(key)
        return FixedAddress(hints.address, ports, hints.address_from, key)
    module = mpi_world.load(must_be_loaded=not hints.mpi)
    if module is not None and mpi_world.fits(module, launched.rank, launched.size):
        return MpiMessage(module, ranks, deadline)
    if not hints.job:
        stranger = "" if module is None else f" (the mpi4py that is installed uses {mpi_world.name(module)})"
        raise ValueError(f"the ranks started by {hints.launcher} cannot find each other{stranger}: {REMEDY}")
    neighbours = hints.local[1] if hints.local is not None else 1
    try:
        shared = SharedFile([shared_directory()], _name(hints.job, scope), neighbours)
    except ValueError as error:
        raise ValueError(f"{error}; {REMEDY}") from None
    copies: SharedFile | None = None
    with contextlib.suppress(ValueError):
        copies = SharedFile(local_directories(), _name(hints.job, scope, launched.host))
    return NetworkFile(shared, copies, neighbours)


def secret_of(environ: Mapping[str, str]) -> bytes | None:
    """The user's own secret, from the variable or the key file; None if neither is set."""
    given = environ.get(SECRET, "").strip().encode()
    if given and len(given) < KEY_BYTES:  # without the value: it is a secret
        raise ValueError(f"{SECRET} must have {KEY_BYTES} characters or more: openssl rand -hex 32")
    return checked_secret(given, SECRET) if given else read_key_file(environ)


def _name(*about: str) -> str:
    return NAME_PREFIX + hashlib.sha256("\0".join(about).encode()).hexdigest()[:32]
