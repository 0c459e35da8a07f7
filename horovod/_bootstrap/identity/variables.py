"""The variables that describe a process's place, and how their values are read."""

from __future__ import annotations

import socket
from collections.abc import Mapping

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
# Of elastic jobs: the number of this process, which never changes, and its first rank
WORKER = "_HOROVOD_WORKER"
START_RANK = "HOROVOD_START_RANK"
# The descriptor of the file in which horovodrun's agent reads what a killed rank did last
RECENT = "_HOROVOD_RECENT"

_LARGEST_PORT = 65535


def host_name(environ: Mapping[str, str]) -> str:
    """Ranks with the same name are on the same host."""
    return environ.get(HOSTNAME) or socket.gethostname()


def text(environ: Mapping[str, str], name: str, because: str) -> str:
    """The value of `name`; ValueError, saying `because`, if it is not set."""
    value = environ.get(name, "").strip()
    if not value:
        raise ValueError(f"{name} is not set, but {because}")
    return value


def number(environ: Mapping[str, str], name: str, smallest: int, because: str) -> int:
    """A whole number of at least `smallest`; ValueError if it is something else, or not set."""
    value = text(environ, name, because)
    if not (value.isascii() and value.isdigit()) or int(value) < smallest:
        raise ValueError(f"{name}={value!r} must be a whole number, {smallest} or more")
    return int(value)


def rank_and_size(
    environ: Mapping[str, str], rank_name: str, size_name: str, because: str
) -> tuple[int, int]:
    """Two numbers, the first below the second; ValueError if they are not."""
    size = number(environ, size_name, 1, because)
    rank = number(environ, rank_name, 0, because)
    if rank >= size:
        raise ValueError(f"{rank_name}={rank} must be below {size_name}={size}")
    return rank, size


def port(environ: Mapping[str, str], because: str) -> int:
    """The port of the rendezvous."""
    value = number(environ, PORT, 1, because)
    if value > _LARGEST_PORT:
        raise ValueError(f"{PORT}={value} must be a TCP port, at most {_LARGEST_PORT}")
    return value


def first_set(environ: Mapping[str, str], *names: str) -> str:
    """The first of the variables that has a value; empty if none has."""
    return next((name for name in names if environ.get(name)), "")
