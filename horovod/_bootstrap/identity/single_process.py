"""Started by hand: a job of one."""

from __future__ import annotations

from collections.abc import Mapping

from horovod._bootstrap.identity.base import Identity
from horovod._bootstrap.identity.variables import ADDRESS, PORT, RANK, SIZE, host_name


class SingleProcess:
    """Recognises everything that no launcher has started."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        for name in (SIZE, ADDRESS, PORT):
            if name in environ:
                raise ValueError(
                    f"{RANK} is not set, but {name} is, and no launcher tells the rank: set both or neither"
                )
        return Identity(0, 1, 0, 1, 0, 1, host_name(environ))
