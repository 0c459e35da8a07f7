"""Started by torchrun."""

from __future__ import annotations

from collections.abc import Mapping

from horovod._bootstrap.identity.base import DiscoveryHints, Identity
from horovod._bootstrap.identity.variables import HOSTNAME, host_name
from horovod._bootstrap.identity.without_rendezvous import identity_of, job_of, with_local


class Torchrun:
    """torchrun, also under srun or mpirun: what it starts is its own."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        if "TORCHELASTIC_RUN_ID" not in environ or "RANK" not in environ:
            return None
        names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
        hints = DiscoveryHints(
            "torchrun",
            "TORCHELASTIC_RUN_ID",
            job=job_of(environ, *names),
            address=environ.get("MASTER_ADDR", ""),
            address_from="MASTER_ADDR",
        )
        host = host_name(environ)
        # torchrun may be run twice on one machine, and LOCAL_RANK then counts from 0 twice.
        if environ.get("GROUP_WORLD_SIZE", "1") != "1" and HOSTNAME not in environ:
            host += f"/{environ.get('GROUP_RANK', '')}"
        identity = identity_of(environ, "RANK", "WORLD_SIZE", hints, host)
        return with_local(identity, environ, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
