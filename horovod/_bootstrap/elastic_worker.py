"""A worker of an elastic job: who it is for its whole life, and where it asks for a place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from horovod._bootstrap.identity import variables
from horovod._bootstrap.identity.horovodrun import addresses_of, key_of
from horovod._bootstrap.identity.variables import ADDRESS, LOCAL_RANK, WORKER, host_name

_BECAUSE = f"a worker of an elastic job needs it ({WORKER})"


@dataclass(frozen=True)
class ElasticWorker:
    """What stays the same in every world that it is in; `slot` is its number on its host."""

    number: int
    host: str
    slot: int
    rendezvous: tuple[str, int]
    key: bytes = field(repr=False)  # must not end up in a log
    addresses: tuple[str, ...] = ()

    @staticmethod
    def detect(environ: Mapping[str, str]) -> ElasticWorker | None:
        """None outside of elastic jobs; ValueError naming a variable that is wrong."""
        if not environ.get(WORKER):
            return None
        return ElasticWorker(
            number=variables.number(environ, WORKER, 0, _BECAUSE),
            host=host_name(environ),
            slot=variables.number(environ, LOCAL_RANK, 0, _BECAUSE),
            rendezvous=(variables.text(environ, ADDRESS, _BECAUSE), variables.port(environ, _BECAUSE)),
            key=key_of(environ, _BECAUSE),
            addresses=addresses_of(environ),
        )

    def __str__(self) -> str:
        return f"{self.host}[{self.slot}]"
