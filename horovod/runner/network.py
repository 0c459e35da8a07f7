"""This machine's names and addresses, and connections that notice when the other machine is gone."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import NamedTuple

LOOPBACK = "127.0.0.1"

Endpoint = tuple[str, int]  # numeric address and port

# A silent machine is given up after IDLE + INTERVAL * COUNT seconds. The kernel answers for a process that is
# merely stopped, so Ctrl-Z at the launcher is no reason.
_KEEPALIVE_IDLE, _KEEPALIVE_INTERVAL, _KEEPALIVE_COUNT = 2, 1, 4


class Address(NamedTuple):
    """A numeric address and the interface that has it."""

    interface: str
    address: str


def is_local(name: str) -> bool:
    """Whether ``name`` is this machine: its own name, or one that resolves to an address of it.

    ``user@name`` is not, as ssh has to make another user of us.
    """
    if "@" in name:
        return False
    if name in ("localhost", LOOPBACK, "::1", socket.gethostname()):
        return True
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    return any(_can_bind(family, address) for family, _, _, _, address in found)


def _can_bind(family: int, address: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]) -> bool:
    """Only an address of this machine can be bound."""
    if ipaddress.ip_address(str(address[0]).partition("%")[0]).is_unspecified:
        return False
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def addresses(interfaces: Sequence[str] = (), first: str = "") -> list[Address]:
    """Where other machines may reach this one: ``first`` in front if it is among them, IPv4 before IPv6.

    With ``interfaces`` only those, in that order; ValueError if none of them has an address. Without, all but
    loopback. IPv6 addresses that are only valid on one link are left out: they need a scope.
    """
    import psutil  # here: the agent of a job on one machine does without

    stats = psutil.net_if_stats()
    found: list[Address] = []
    for name, entries in psutil.net_if_addrs().items():
        if not (stats[name].isup if name in stats else True) or (interfaces and name not in interfaces):
            continue
        for entry in entries:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            address = ipaddress.ip_address(entry.address.partition("%")[0])
            if (address.is_loopback and not interfaces) or (address.version == 6 and address.is_link_local):
                continue
            found.append(Address(name, str(address)))
    if interfaces and not found:
        there = ", ".join(name for name in stats if stats[name].isup)
        raise ValueError(
            f"no interface named {' or '.join(interfaces)} has an address; the interfaces are {there}"
        )

    def order(entry: Address) -> tuple[bool, int, bool]:
        position = list(interfaces).index(entry.interface) if interfaces else 0
        return entry.address != first, position, ":" in entry.address

    return sorted(found, key=order)


def keep_alive(sock: socket.socket) -> None:
    """Makes the kernel notice within seconds that the other machine is gone, also if nothing is sent."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_COUNT)
