"""What the first rank tells the others: where the rendezvous listens, and the job key."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from horovod._net.addresses import Endpoint
from horovod._net.handshake import check_key

MAX_BYTES = 1 << 16  # of an encoded one


@dataclass(frozen=True)
class RendezvousEndpoint:
    """Any of the addresses may be the one that a rank can reach."""

    addresses: tuple[Endpoint, ...]
    key: bytes = field(repr=False)  # must not end up in a log
    host: str = ""  # the name of rank 0's; empty if not known

    def encode(self) -> bytes:
        return json.dumps({"addresses": self.addresses, "key": self.key.hex(), "host": self.host}).encode()


def decode(data: bytes) -> RendezvousEndpoint:
    """The opposite of encode(); ValueError if it is something else."""
    try:
        content = json.loads(data)
        addresses = tuple((str(address), int(port)) for address, port in content["addresses"])
        return RendezvousEndpoint(addresses, check_key(bytes.fromhex(content["key"])), str(content["host"]))
    except (KeyError, TypeError, ValueError):  # without the text: it has the key in it
        raise ValueError("this is not the endpoint of a job of this Horovod version") from None
