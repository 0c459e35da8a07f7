"""Rank 0 at an address, and with a key, that the user has made known to all ranks."""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from horovod._bootstrap.discovery.endpoint import RendezvousEndpoint

KEY_FILE = "HOROVOD_SECRET_KEY_FILE"
_LEAST, _MOST = 32, 4096  # bytes
# Below the ports that systems hand out by themselves.
_FIRST_PORT, _PORTS = 20000, 10000
_CANDIDATES = 4  # ports


def read_key_file(environ: Mapping[str, str]) -> bytes | None:
    """The content of the user's key file; None if none is named; ValueError if it isn't fit."""
    path = environ.get(KEY_FILE, "").strip()
    if not path:
        return None
    try:
        # A link is all right: that is how Kubernetes shows a secret. What counts is the owner of
        # the file.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            secret = file.read(_MOST + 1).strip() if stat.S_ISREG(status.st_mode) else b""
    except OSError as error:
        raise ValueError(f"{KEY_FILE}={path}: {error.strerror or error}") from error
    # What root has mounted for the group of a pod that is not root's (Kubernetes: fsGroup) is for
    # this one.
    mounted = status.st_uid == 0 != os.geteuid()
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & (0o037 if mounted else 0o077):
        raise ValueError(f"{KEY_FILE}={path} must belong to you and be closed to others: chmod 600 {path}")
    if not _LEAST <= len(secret) <= _MOST:
        raise ValueError(
            f"{KEY_FILE}={path} must hold {_LEAST} to {_MOST} bytes, for example from: openssl rand -hex 32"
        )
    return checked_secret(secret, f"{KEY_FILE}={path}")


def checked_secret(secret: bytes, source: str) -> bytes:
    """The secret, unless it is the text that stands for one in the manual."""
    if b"openssl rand" in secret:
        raise ValueError(
            f"{source} holds the example's text, not a secret: put the output of that command there"
        )
    return secret


def derived_key(secret: bytes, *about: str) -> bytes:
    """A key for each job, so that jobs with the same file don't mistake each other's ranks."""
    return hmac.digest(secret, "\0".join(("horovod job key", *about)).encode(), "sha256")


def derived_ports(key: bytes) -> tuple[int, ...]:
    """Where rank 0 may listen: several, as some may be in use. Only key holders know them."""
    digest = hmac.digest(key, b"horovod ports", "sha256")
    numbers = [int.from_bytes(digest[4 * i : 4 * i + 4], "big") for i in range(_CANDIDATES)]
    return tuple(dict.fromkeys(_FIRST_PORT + number % _PORTS for number in numbers))


@dataclass(frozen=True)
class FixedAddress:
    """Nothing has to be passed on. Rank 0 listens on the first of the ports that is free."""

    name: str
    ports: tuple[int, ...]
    source: str  # the variable that has the name
    key: bytes = field(repr=False)

    def close(self) -> None:
        pass

    @contextlib.contextmanager
    def publish(self, endpoint: RendezvousEndpoint) -> Iterator[None]:
        yield

    def poll(self) -> RendezvousEndpoint | None:
        addresses = tuple((address, port) for address in self.addresses() for port in self.ports)
        return RendezvousEndpoint(addresses, self.key) if addresses else None

    def waiting_for(self) -> str:
        ports = " or ".join(map(str, self.ports))
        return f"nobody with the same key answers at {self.name}, port {ports} ({self.source})"

    def addresses(self) -> list[str]:
        """Empty while the name is unknown: that of a pod appears some time after the pod."""
        try:
            found = socket.getaddrinfo(self.name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return []
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))
