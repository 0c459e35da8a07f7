"""Started by mpiexec of MPICH or Intel MPI, or by others that speak PMI."""

from __future__ import annotations

from collections.abc import Mapping

from horovod._bootstrap.identity.base import DiscoveryHints, Identity
from horovod._bootstrap.identity.slurm import in_a_step
from horovod._bootstrap.identity.without_rendezvous import identity_of, job_of, with_local

RANK, SIZE = "PMI_RANK", "PMI_SIZE"


class Mpich:
    """Its processes can also find each other through MPI."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        # srun --mpi=pmi2 sets these too, but knows more than it tells in them.
        if RANK not in environ or ("MPI_LOCALRANKID" not in environ and in_a_step(environ)):
            return None
        hints = DiscoveryHints("mpiexec", RANK, job=job_of(environ, "PMI_JOBID"), mpi=True)
        identity = identity_of(environ, RANK, SIZE, hints)
        return with_local(identity, environ, "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
