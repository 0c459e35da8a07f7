"""Started by mpirun of Open MPI."""

from __future__ import annotations

from collections.abc import Mapping

from horovod._bootstrap.identity.base import DiscoveryHints, Identity
from horovod._bootstrap.identity.without_rendezvous import identity_of, job_of, with_local

RANK, SIZE = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"


class OpenMpi:
    """Its processes can also find each other through MPI."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        if RANK not in environ:
            return None
        job = job_of(environ, "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri")
        hints = DiscoveryHints("Open MPI's mpirun", RANK, job=job, mpi=True)
        identity = identity_of(environ, RANK, SIZE, hints)
        return with_local(identity, environ, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
