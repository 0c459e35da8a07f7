"""How the ranks of a job find each other if its launcher is not ours: the first rank runs the rendezvous.

It does so only while the ranks connect. The others learn where it listens, and the key of the job, in one of
several ways, chosen by what every rank knows; then everything goes on as under horovodrun.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import random
import secrets
import selectors
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from horovod._bootstrap import descriptors, mpi_world
from horovod._bootstrap.auth import KEY_BYTES, Session
from horovod._bootstrap.dialer import Dialer, elsewhere, family_of
from horovod._bootstrap.fixed_address import (
    KEY_FILE,
    FixedAddress,
    checked_secret,
    derived_key,
    derived_ports,
    read_key_file,
)
from horovod._bootstrap.identity import ADDRESS, SECRET, Identity, Meeting
from horovod._bootstrap.launcher_process import launcher_process
from horovod._bootstrap.notice import Endpoint, Notice
from horovod._bootstrap.noticeboard import (
    NAME_PREFIX,
    Noticeboard,
    host_directories,
    local_directories,
    shared_directory,
)
from horovod._bootstrap.protocol import PURPOSE
from horovod._bootstrap.server import RendezvousServer
from horovod._bootstrap.shared_board import SharedBoard
from horovod.common.exceptions import HorovodInternalError

_LOOPBACK = "127.0.0.1"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
_CROWD = 256  # ranks that rank 0's host can be asked by so often
_TRY_SECONDS = 3.0  # for one look at all addresses
REMEDY = (
    "install the mpi4py that fits if MPI started the job, or name the host of rank 0 in "
    f"{ADDRESS} and a file with a secret of yours, the same on all hosts, in {KEY_FILE}, or use horovodrun"
)


class Way(Protocol):
    """How a notice gets from the first rank to the others."""

    def offer(self, notice: Notice) -> AbstractContextManager[None]:
        """The first rank: passes the notice on."""

    def look(self) -> Notice | None:
        """The others: what is there by now. ValueError if it is of no use."""

    def waiting_for(self) -> str:
        """What has not happened while look() finds nothing."""

    def close(self) -> None: ...


@contextlib.contextmanager
def prepared(
    launched: Identity, identity: Identity, ranks: Sequence[int], scope: str, timeout: float
) -> Iterator[tuple[Identity, float]]:
    """The identity with rendezvous and key, valid inside of the block, and how many of the seconds are left.

    `launched` is what detect() gave; `identity` is the place among `ranks`, those of the launched ranks that
    meet, in order. `scope` is the same on these ranks and different for every time that they meet.
    Raises HorovodInternalError if the first rank can't be found, ValueError if there is no way to find it.
    """
    if identity.meeting is None or identity.size == 1:
        yield identity, timeout
        return
    deadline = time.monotonic() + timeout
    one_host = identity.meeting.local is not None and identity.meeting.local[1] == launched.size
    with contextlib.closing(_choose(launched, identity.meeting, one_host, ranks, scope, deadline)) as way:
        if identity.rank != 0:
            yield _find(way, identity, one_host, deadline, timeout), _left(deadline)
            return
        _require_descriptors(identity.size)
        key = secrets.token_bytes(KEY_BYTES)
        ports: tuple[int, ...] = (0,)
        addresses = [_LOOPBACK] if one_host else _own_addresses()
        listen_on = addresses
        if isinstance(way, FixedAddress):
            key, ports, listen_on = way.key, way.ports, _named(way, addresses)
        server = _listen(key, listen_on, ports, identity.size)
        place = replace(identity, rendezvous=server.endpoints[0], key=key, addresses=tuple(addresses))
        try:
            with way.offer(Notice(tuple(server.endpoints), key, identity.host)):
                yield place, _left(deadline)
        finally:
            server.retire()


def _listen(key: bytes, addresses: Sequence[str], ports: Sequence[int], clients: int) -> RendezvousServer:
    """On the first of the ports that is free on all the addresses."""
    problem: OSError | None = None
    for port in ports:
        try:
            return RendezvousServer(key, addresses, port, clients, threads=2).start()
        except OSError as error:
            problem = error
    numbers = " or ".join(str(port or "any") for port in ports)
    raise HorovodInternalError(
        f"rank 0 cannot listen on {', '.join(addresses)}, port {numbers}: {problem}; choose another port "
        "with HOROVOD_GLOO_RENDEZVOUS_PORT"
    ) from problem


def _require_descriptors(size: int) -> None:
    descriptors.raise_limit()
    try:
        descriptors.require(size, f"rank 0 and the rendezvous of {size} ranks")
    except OSError as error:
        raise HorovodInternalError(str(error.strerror)) from error


def _left(deadline: float) -> float:
    """In whole seconds, at least one: it appears in messages."""
    return max(1, math.ceil(deadline - time.monotonic()))


def _choose(
    launched: Identity, meeting: Meeting, one_host: bool, ranks: Sequence[int], scope: str, deadline: float
) -> Way:
    """All ranks must come to the same conclusion."""
    if one_host:
        about = (meeting.job, launcher_process(meeting.marker), scope)
        return Noticeboard(host_directories(), _name(*about))
    secret = _secret(os.environ)
    explicit = meeting.address_from == ADDRESS
    if explicit and secret is None:
        raise ValueError(
            f"{ADDRESS} is set, but no key is: put the same secret into a file on every host (openssl rand "
            f"-hex 32 > file; chmod 600 file) and name it in {KEY_FILE}"
        )
    if secret is not None and meeting.address:
        if ranks[0] != 0:
            raise ValueError(
                f"hvd.init(comm={list(ranks)}): with {KEY_FILE} rank 0 must be the first of the list"
            )
        key = derived_key(secret, meeting.job, scope)
        ports = (meeting.port,) if meeting.port else derived_ports(key)
        return FixedAddress(meeting.address, ports, meeting.address_from, key)
    module = mpi_world.load(must_be_loaded=not meeting.mpi)
    if module is not None and mpi_world.fits(module, launched.rank, launched.size):
        return mpi_world.MpiMessenger(module, ranks, deadline)
    if not meeting.job:
        stranger = "" if module is None else f" (the mpi4py that is installed uses {mpi_world.name(module)})"
        raise ValueError(
            f"the ranks started by {meeting.launcher} cannot find each other{stranger}: {REMEDY}"
        )
    neighbours = meeting.local[1] if meeting.local is not None else 1
    try:
        shared = Noticeboard([shared_directory()], _name(meeting.job, scope), neighbours)
    except ValueError as error:
        raise ValueError(f"{error}; {REMEDY}") from None
    copies: Noticeboard | None = None
    with contextlib.suppress(ValueError):
        copies = Noticeboard(local_directories(), _name(meeting.job, scope, launched.host))
    return SharedBoard(shared, copies, neighbours)


def _secret(environ: Mapping[str, str]) -> bytes | None:
    given = environ.get(SECRET, "").strip().encode()
    if given and len(given) < KEY_BYTES:  # without the value: it is a secret
        raise ValueError(f"{SECRET} must have {KEY_BYTES} characters or more: openssl rand -hex 32")
    return checked_secret(given, SECRET) if given else read_key_file(environ)


def _name(*about: str) -> str:
    return NAME_PREFIX + hashlib.sha256("\0".join(about).encode()).hexdigest()[:32]


def _find(way: Way, identity: Identity, one_host: bool, deadline: float, timeout: float) -> Identity:
    pause, longest = _FIRST_PAUSE, _LONGEST_PAUSE
    if isinstance(way, FixedAddress):
        longest *= max(1.0, identity.size / _CROWD)
    problem = ""
    while True:
        try:
            notice = way.look()
            if notice is not None:
                there = notice.host and notice.host != identity.host
                endpoints = elsewhere(notice.endpoints) if there else notice.endpoints
                own = not isinstance(way, FixedAddress)
                until = min(deadline, time.monotonic() + _TRY_SECONDS)
                sock, problem = _first_answer(endpoints, notice.key, own, until)
                if sock is not None:
                    found = replace(identity, key=notice.key, rendezvous_is_own=own)
                    return _reached(sock, found, one_host)
        except ValueError as error:
            problem = str(error)
        if time.monotonic() >= deadline:
            remedy = "see the output of rank 0" if one_host else f"see the output of rank 0; else {REMEDY}"
            raise HorovodInternalError(
                f"rank {identity.rank} (host {identity.host}) has not found rank 0 within {timeout:g} s: "
                f"{way.waiting_for()}{problem and f' ({problem})'}; {remedy}"
            )
        time.sleep(max(0.0, min(random.uniform(0.5, 1.5) * pause, deadline - time.monotonic())))
        pause = min(longest, 2 * pause)


def _reached(sock: socket.socket, identity: Identity, one_host: bool) -> Identity:
    with sock:
        rendezvous = sock.getpeername()[:2]
        own = str(sock.getsockname()[0])
    addresses = () if one_host else tuple(_own_addresses(own))
    return replace(identity, rendezvous=rendezvous, addresses=addresses)


def _first_answer(
    endpoints: Sequence[Endpoint], key: bytes, own: bool, deadline: float
) -> tuple[socket.socket | None, str]:
    """An authenticated connection to one of the endpoints, or why there is none.

    `own`: rank 0 knows itself by these addresses.
    """
    opened: list[socket.socket] = []

    def on_open(sock: socket.socket, _: Session) -> None:
        opened.append(sock)

    with selectors.DefaultSelector() as selector:
        dialers = [
            Dialer(
                selector,
                key,
                PURPOSE,
                [(family_of(endpoint[0]), endpoint)],
                on_open,
                rounds=1,
                bound=own,
            )
            for endpoint in endpoints
        ]
        try:
            while not opened and time.monotonic() < deadline:
                if all(dialer.gave_up for dialer in dialers):
                    break
                for selected, _ in selector.select(min(0.1, max(0.0, deadline - time.monotonic()))):
                    selected.data()
                for dialer in dialers:
                    dialer.tick(time.monotonic())
        finally:
            for dialer in dialers:
                dialer.close()
    for extra in opened[1:]:
        extra.close()
    texts = [f"{address}: {each.problem}" for (address, _), each in zip(endpoints, dialers, strict=True)]
    return (opened[0], "") if opened else (None, ", ".join(texts))


def _own_addresses(first: str = "") -> list[str]:
    from horovod.runner.network import addresses  # here: psutil takes its time

    return [entry.address for entry in addresses(first=first)] or [_LOOPBACK]


def _named(way: FixedAddress, own: Sequence[str]) -> list[str]:
    """Those of the own addresses that the name stands for; all if it can't be told."""
    named = way.addresses()
    if way.name in ("localhost", _LOOPBACK, "::1"):
        return named
    # A host's own name is often an address of the loopback interface there, and only there.
    return [address for address in own if address in named] or list(own)
