"""Which host names mean this machine."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def is_local(name: str) -> bool:
    """Whether ``name`` is this machine: its own name, or one that resolves to an address of it."""
    if name in ("localhost", LOOPBACK, socket.gethostname()):
        return True
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return False
    # Only an address of this machine can be bound.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return address != "0.0.0.0"
