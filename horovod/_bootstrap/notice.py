"""What rank 0 tells the others of a job without a launcher of ours: where it listens, and the job key."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from horovod._bootstrap.auth import check_key

Endpoint = tuple[str, int]  # numeric address and port
NOTICE_BYTES = 1 << 16  # no notice is larger


@dataclass(frozen=True)
class Notice:
    """Any of the endpoints may be the one that a rank can reach."""

    endpoints: tuple[Endpoint, ...]
    key: bytes = field(repr=False)  # must not end up in a log
    host: str = ""  # the name of rank 0's; empty if not known

    def encode(self) -> bytes:
        return json.dumps({"endpoints": self.endpoints, "key": self.key.hex(), "host": self.host}).encode()


def decode(data: bytes) -> Notice:
    """The opposite of encode(); ValueError if it isn't a notice."""
    try:
        content = json.loads(data)
        endpoints = tuple((str(address), int(port)) for address, port in content["endpoints"])
        return Notice(endpoints, check_key(bytes.fromhex(content["key"])), str(content["host"]))
    except (KeyError, TypeError, ValueError):  # without the text: it has the key in it
        raise ValueError("this is not the notice of a job of this Horovod version") from None
