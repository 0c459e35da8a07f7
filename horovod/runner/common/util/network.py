"""This machine's addresses. The services that exchanged pickles under these names are not there."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from horovod import _absent
from horovod._net.addresses import LOOPBACK, is_local, own_addresses

__all__ = ["filter_local_addresses", "get_driver_ip", "get_local_host_addresses", "resolve_host_address"]

_absent.without_names(__name__)


def get_local_host_addresses() -> set[str]:
    """The numeric addresses of this machine, loopback among them."""
    return {LOOPBACK, *(entry.address for entry in own_addresses())}


def filter_local_addresses(all_host_names: Iterable[str]) -> list[str]:
    """The names of other machines among these."""
    return [name for name in all_host_names if not is_local(name)]


def get_driver_ip(nics: Iterable[str] = ()) -> str:
    """Where other hosts reach this one; with ``nics`` through one of them. ValueError, OSError."""
    found = own_addresses(list(nics))
    if not found:
        raise OSError("this machine has no network address besides loopback, so no other host can reach it")
    return found[0].address


def resolve_host_address(host_name: str) -> str | None:
    """An address of the host, IPv4 if it has one; None if the name is unknown."""
    try:
        found = socket.getaddrinfo(host_name, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])
