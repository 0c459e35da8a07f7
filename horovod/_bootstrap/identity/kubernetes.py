"""A pod of an indexed Job of Kubernetes that is told the number of pods."""

from __future__ import annotations

from collections.abc import Mapping

from horovod._bootstrap.identity.base import DiscoveryHints, Identity
from horovod._bootstrap.identity.variables import ADDRESS, SIZE
from horovod._bootstrap.identity.without_rendezvous import identity_of

KUBERNETES_PORT = 24500
RANK = "JOB_COMPLETION_INDEX"


class Kubernetes:
    """Without the number each pod is on its own."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        if RANK not in environ or SIZE not in environ:
            return None
        identity = identity_of(environ, RANK, SIZE, DiscoveryHints("Kubernetes", RANK, port=KUBERNETES_PORT))
        if identity.size > 1 and not environ.get(ADDRESS):
            raise ValueError(
                f"{ADDRESS} is not set: a Job of {identity.size} pods needs the name of that with index 0, "
                "<name of the Job>-0.<name of the headless Service>"
            )
        return identity
