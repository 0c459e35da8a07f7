"""IP addresses: this machine's own, their usual form, and those that lead to another machine."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple

# Neither ipaddress nor psutil is imported here: every rank would have to load them.

LOOPBACK = "127.0.0.1"

Endpoint = tuple[str, int]  # numeric address and port


class InterfaceAddress(NamedTuple):
    """A numeric address and the interface that has it."""

    interface: str
    address: str


def family_of(address: str) -> int:
    """The address family of a numeric IP address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def usual_form(address: str) -> str:
    """A numeric IP address as it is usually written; ValueError if it is something else."""
    family = family_of(address)
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, address))
    except OSError as error:
        raise ValueError(f"{address!r} is not an IP address") from error


def show(endpoint: Endpoint) -> str:
    """An endpoint for messages."""
    address, port = endpoint
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def is_own(address: str) -> bool:
    """Whether a numeric IP address is one of this machine: others can't be bound."""
    return _can_bind(family_of(address), (address, 0))


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
    # Every machine can bind 0.0.0.0, so that proves nothing.
    unspecified = ("0.0.0.0", "::")
    return any(
        address[0] not in unspecified and _can_bind(family, address) for family, _, _, _, address in found
    )


def _can_bind(family: int, address: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]) -> bool:
    """Only an address of this machine can be bound."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind(address)
    except OSError:
        return False
    return True


def elsewhere(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """Those endpoints of a peer on another host that are not addresses of this one as well.

    Hosts often have a private network of the same address each (docker0). If nothing is left, the
    other host is this machine by another name, and all count.
    """
    foreign = [endpoint for endpoint in endpoints if not is_own(endpoint[0])]
    return foreign or list(endpoints)


def own_addresses(interfaces: Sequence[str] = (), first: str = "") -> list[InterfaceAddress]:
    """Where other machines may reach this one: ``first`` in front if it is among them, IPv4 before
    IPv6.

    With ``interfaces`` only those, in that order; ValueError if none of them has an address.
    Without, all but loopback. IPv6 addresses that are only valid on one link are left out: they
    need a scope.
    """
    import ipaddress

    import psutil

    stats = psutil.net_if_stats()
    found: list[InterfaceAddress] = []
    for name, entries in psutil.net_if_addrs().items():
        if not (stats[name].isup if name in stats else True) or (interfaces and name not in interfaces):
            continue
        for entry in entries:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            address = ipaddress.ip_address(entry.address.partition("%")[0])
            if (address.is_loopback and not interfaces) or (address.version == 6 and address.is_link_local):
                continue
            found.append(InterfaceAddress(name, str(address)))
    if interfaces and not found:
        there = ", ".join(name for name in stats if stats[name].isup)
        raise ValueError(
            f"no interface named {' or '.join(interfaces)} has an address; the interfaces are {there}"
        )

    def order(entry: InterfaceAddress) -> tuple[bool, int, bool]:
        position = list(interfaces).index(entry.interface) if interfaces else 0
        return entry.address != first, position, ":" in entry.address

    return sorted(found, key=order)
