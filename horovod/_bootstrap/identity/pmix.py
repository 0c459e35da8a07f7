"""Started by a launcher that speaks PMIx and tells nothing but the rank."""

from __future__ import annotations

from collections.abc import Mapping

from horovod._bootstrap import mpi_world
from horovod._bootstrap.identity.base import DiscoveryHints, Identity
from horovod._bootstrap.identity.variables import SIZE
from horovod._bootstrap.identity.without_rendezvous import identity_of, job_of

RANK = "PMIX_RANK"


class Pmix:
    """The number of processes is the user's, or MPI's, to tell."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        if RANK not in environ:
            return None
        if SIZE not in environ:
            size = mpi_world.size()
            if size is None:
                raise ValueError(
                    f"{RANK} is set, but nothing tells the number of processes: install mpi4py, or set {SIZE}"
                )
            environ = {**environ, SIZE: str(size)}
        hints = DiscoveryHints("a PMIx launcher", RANK, job=job_of(environ, "PMIX_NAMESPACE"), mpi=True)
        return identity_of(environ, RANK, SIZE, hints)
