"""Connects ranks of different hosts that had nothing to say to each other before a process set."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from horovod import _core
from horovod._bootstrap.world.mesh import Mesh
from horovod._net.addresses import Endpoint
from horovod.common.arrays import collectives
from horovod.common.handles import table
from horovod.common.process_sets import global_process_set
from horovod.common.session import Session
from horovod.errors import HorovodInternalError


def add(session: Session, mesh: Mesh, number: int, ranks: Sequence[int]) -> None:
    """Makes the connections that process set `number` needs, on all ranks at the same time.

    A failure ends the job: members of the set could never talk to each other.
    """

    def gather(own: list[Endpoint]) -> Sequence[list[Endpoint]]:
        line = json.dumps(own).encode() + b"\n"
        array = np.frombuffer(line, np.uint8)
        handle = collectives.allgather([array], f"connections.{number}", global_process_set)
        return [json.loads(each) for each in bytes(table.synchronize(handle)).splitlines()]

    def check() -> None:
        culprit = session.engine.culprit()
        if culprit is not None:
            raise HorovodInternalError(f"rank {culprit.rank} failed while process set {number} was connected")

    try:
        for (peer, _), (sock, keys) in mesh.connect(ranks, gather, check).items():
            session.engine.connect(peer, sock.detach(), keys if mesh.encrypted else None)
        # All ranks hear of a failure here, also those that had nothing to connect.
        session.run(_core.BARRIER, b"connections", 0)
    except OSError as error:
        text = f"rank {session.place.rank} could not connect process set {number}: {error}"
        session.engine.abort(text)
        raise HorovodInternalError(text) from error
    except HorovodInternalError as error:
        session.engine.abort(str(error))
        raise
