"""Who this process is: one class for each way of being started, each with a static detect()."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from horovod._bootstrap.auth import KEY_BYTES, usual_form

RANK = "HOROVOD_RANK"
SIZE = "HOROVOD_SIZE"
LOCAL_RANK = "HOROVOD_LOCAL_RANK"
LOCAL_SIZE = "HOROVOD_LOCAL_SIZE"
CROSS_RANK = "HOROVOD_CROSS_RANK"
CROSS_SIZE = "HOROVOD_CROSS_SIZE"
HOSTNAME = "HOROVOD_HOSTNAME"
ADDRESSES = "HOROVOD_ADDRESSES"
ADDRESS = "HOROVOD_GLOO_RENDEZVOUS_ADDR"
PORT = "HOROVOD_GLOO_RENDEZVOUS_PORT"
SECRET = "_HOROVOD_SECRET_KEY"


@dataclass(frozen=True)
class Meeting:
    """What a launcher that runs no rendezvous server tells about the job: rank 0 will run it."""

    launcher: str  # for messages
    marker: str  # a variable that the launcher's processes have, and the launcher itself has not
    job: str = ""  # different for any two jobs of a cluster; empty if the launcher gives no such thing
    local: tuple[int, int] | None = None  # local rank and size, if the launcher tells them
    address: str = ""  # name of rank 0's host, if the user or the launcher gives it
    address_from: str = ""  # the variable
    port: int = 0  # where rank 0 listens at that address; 0: follows from the key
    mpi: bool = False  # MPI sees the same ranks


@dataclass(frozen=True)
class Identity:
    """This process's place in the job and how to reach the others. A job of one needs no rendezvous.

    With a `meeting` the rendezvous and the key are still to be found out, and the local and cross numbers
    follow from the hosts of all ranks: until then they are 0 of 1.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    host: str
    rendezvous: tuple[str, int] | None = None
    key: bytes | None = field(default=None, repr=False)  # must not end up in a log
    addresses: tuple[str, ...] = ()  # where the other hosts reach this one, best first; empty: find out
    meeting: Meeting | None = None
    # Whether the server itself named the address of the rendezvous: one from the user may be translated.
    rendezvous_is_own: bool = True


class WayOfStarting(Protocol):
    """Recognises a launcher by what it leaves in the environment."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        """None if this isn't the way; ValueError naming the variable if it is, but one is wrong."""


class Horovodrun:
    """Started by horovodrun, or by a scheduler that sets the same variables by hand."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        if RANK not in environ:
            return None
        if SIZE not in environ:
            raise ValueError(f"{SIZE} is not set, but {RANK} is: set both or neither")
        size = _number(environ, SIZE, 1)
        rank = _below(environ, RANK, SIZE)
        if size == 1:
            return Identity(rank, 1, 0, 1, 0, 1, host_name(environ))
        identity = Identity(
            rank=rank,
            size=size,
            local_rank=_below(environ, LOCAL_RANK, LOCAL_SIZE),
            local_size=_at_most_size(environ, LOCAL_SIZE, size),
            cross_rank=_below(environ, CROSS_RANK, CROSS_SIZE),
            cross_size=_at_most_size(environ, CROSS_SIZE, size),
            host=host_name(environ),
            rendezvous=(_text(environ, ADDRESS), _port(environ)),
            addresses=_addresses(environ),
            key=_key(environ),
        )
        if identity.local_rank > rank:
            raise ValueError(f"{LOCAL_RANK}={identity.local_rank} is larger than {RANK}={rank}")
        return identity


class SingleProcess:
    """Started by hand: a job of one."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        for name in (SIZE, ADDRESS, PORT):
            if name in environ:
                raise ValueError(
                    f"{RANK} is not set, but {name} is, and no launcher tells the rank: set both or neither"
                )
        return Identity(0, 1, 0, 1, 0, 1, host_name(environ))


_hidden: dict[str, str] = {}  # variables that this process has had


def hide_key() -> None:
    """Takes the job key out of the environment, for what this process starts later. detect() still has it."""
    if SECRET in os.environ:
        _hidden[SECRET] = os.environ.pop(SECRET)


def detect(environ: Mapping[str, str] | None = None) -> Identity:
    """The identity of this process. Raises ValueError naming the variable that is missing or wrong.

    The first way that recognises the environment decides; a plain process is what is left.
    """
    environ = {**_hidden, **os.environ} if environ is None else environ
    identity = Horovodrun.detect(environ)
    if identity is not None:
        return identity

    from horovod._bootstrap.launchers import OTHERS  # here: they need the classes above

    ways: tuple[type[WayOfStarting], ...] = (*OTHERS, SingleProcess)
    for way in ways:
        identity = way.detect(environ)
        if identity is not None:
            return identity
    raise AssertionError("SingleProcess recognises everything")


def host_name(environ: Mapping[str, str]) -> str:
    """Ranks with the same name are on the same host."""
    return environ.get(HOSTNAME) or socket.gethostname()


def _text(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "").strip()
    if not value:
        raise ValueError(f"{name} is not set, but a job of {environ[SIZE]} ranks needs it ({SIZE})")
    return value


def _number(environ: Mapping[str, str], name: str, smallest: int) -> int:
    value = _text(environ, name) if name != SIZE else environ[SIZE].strip()
    if not (value.isascii() and value.isdigit()) or int(value) < smallest:
        raise ValueError(f"{name}={value!r} must be a whole number, {smallest} or more")
    return int(value)


def _below(environ: Mapping[str, str], name: str, limit_name: str) -> int:
    value, limit = _number(environ, name, 0), _number(environ, limit_name, 1)
    if value >= limit:
        raise ValueError(f"{name}={value} must be below {limit_name}={limit}")
    return value


def _at_most_size(environ: Mapping[str, str], name: str, size: int) -> int:
    value = _number(environ, name, 1)
    if value > size:
        raise ValueError(f"{name}={value} must not be above {SIZE}={size}")
    return value


def _port(environ: Mapping[str, str]) -> int:
    value = _number(environ, PORT, 1)
    if value > 65535:
        raise ValueError(f"{PORT}={value} must be a TCP port, at most 65535")
    return value


def _addresses(environ: Mapping[str, str]) -> tuple[str, ...]:
    words = tuple(word.strip() for word in environ.get(ADDRESSES, "").split(",") if word.strip())
    for word in words:
        try:
            usual_form(word)
        except ValueError as error:
            raise ValueError(f"{ADDRESSES}: {error}") from None
    return words


def _key(environ: Mapping[str, str]) -> bytes:
    text = _text(environ, SECRET)
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:  # without the value: it is a secret
        raise ValueError(f"{SECRET} must be {2 * KEY_BYTES} hexadecimal digits")
    return key
