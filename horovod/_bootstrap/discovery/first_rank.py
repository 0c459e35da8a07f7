"""A job whose launcher runs no rendezvous server: its first rank runs one, and the others look for
it.

It does so only while the ranks connect. The others learn where it listens, and the key of the job,
by one of several methods; then everything goes on as under horovodrun.
"""

from __future__ import annotations

import contextlib
import math
import random
import secrets
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from horovod._bootstrap.discovery.endpoint import RendezvousEndpoint
from horovod._bootstrap.discovery.fixed_address import FixedAddress
from horovod._bootstrap.discovery.method import REMEDY, Discovery, choose
from horovod._bootstrap.identity import Identity
from horovod._bootstrap.rendezvous.protocol import PURPOSE
from horovod._bootstrap.rendezvous.server import RendezvousServer
from horovod._net import descriptors
from horovod._net.addresses import LOOPBACK, Endpoint, elsewhere, family_of, own_addresses
from horovod._net.connector import Connector
from horovod._net.handshake import KEY_BYTES, Session
from horovod.errors import HorovodInternalError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
_CROWD = 256  # ranks that rank 0's host can be asked by so often
_TRY_SECONDS = 3.0  # for one look at all addresses


@contextlib.contextmanager
def discovered(
    launched: Identity, identity: Identity, ranks: Sequence[int], scope: str, timeout: float
) -> Iterator[tuple[Identity, float]]:
    """The identity with rendezvous and key, valid inside of the block, and how many of the seconds
    are left.

    `launched` is what detect() gave; `identity` is the place among `ranks`, those of the launched
    ranks that meet, in order. `scope` is the same on these ranks and different for every time that
    they meet. Raises HorovodInternalError if the first rank can't be found, ValueError if there is
    no way to find it.
    """
    hints = identity.discovery
    if hints is None or identity.size == 1:
        yield identity, timeout
        return
    deadline = time.monotonic() + timeout
    one_host = hints.local is not None and hints.local[1] == launched.size
    with contextlib.closing(choose(launched, hints, one_host, ranks, scope, deadline)) as discovery:
        if identity.rank != 0:
            yield _find(discovery, identity, one_host, deadline, timeout), _left(deadline)
            return
        _require_descriptors(identity.size)
        key = secrets.token_bytes(KEY_BYTES)
        ports: tuple[int, ...] = (0,)
        addresses = [LOOPBACK] if one_host else _own_addresses()
        listen_on = addresses
        if isinstance(discovery, FixedAddress):
            key, ports, listen_on = discovery.key, discovery.ports, _named(discovery, addresses)
        server = _listen(key, listen_on, ports, identity.size)
        place = replace(identity, rendezvous=server.endpoints[0], key=key, addresses=tuple(addresses))
        try:
            with discovery.publish(RendezvousEndpoint(tuple(server.endpoints), key, identity.host)):
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


def _find(
    discovery: Discovery, identity: Identity, one_host: bool, deadline: float, timeout: float
) -> Identity:
    pause, longest = _FIRST_PAUSE, _LONGEST_PAUSE
    # Whether rank 0 knows itself by the addresses that it is looked for at.
    own = not isinstance(discovery, FixedAddress)
    if not own:
        longest *= max(1.0, identity.size / _CROWD)
    problem = ""
    while True:
        try:
            endpoint = discovery.poll()
            if endpoint is not None:
                there = endpoint.host and endpoint.host != identity.host
                addresses = elsewhere(endpoint.addresses) if there else endpoint.addresses
                until = min(deadline, time.monotonic() + _TRY_SECONDS)
                sock, problem = _first_answer(addresses, endpoint.key, own, until)
                if sock is not None:
                    found = replace(identity, key=endpoint.key, rendezvous_is_own=own)
                    return _reached(sock, found, one_host)
        except ValueError as error:
            problem = str(error)
        if time.monotonic() >= deadline:
            remedy = "see the output of rank 0" if one_host else f"see the output of rank 0; else {REMEDY}"
            raise HorovodInternalError(
                f"rank {identity.rank} (host {identity.host}) has not found rank 0 within {timeout:g} s: "
                f"{discovery.waiting_for()}{problem and f' ({problem})'}; {remedy}"
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
        connectors = [
            Connector(
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
                if all(connector.gave_up for connector in connectors):
                    break
                for selected, _ in selector.select(min(0.1, max(0.0, deadline - time.monotonic()))):
                    selected.data()
                for connector in connectors:
                    connector.tick(time.monotonic())
        finally:
            for connector in connectors:
                connector.close()
    for extra in opened[1:]:
        extra.close()
    texts = [f"{address}: {each.problem}" for (address, _), each in zip(endpoints, connectors, strict=True)]
    return (opened[0], "") if opened else (None, ", ".join(texts))


def _own_addresses(first: str = "") -> list[str]:
    return [entry.address for entry in own_addresses(first=first)] or [LOOPBACK]


def _named(fixed: FixedAddress, own: Sequence[str]) -> list[str]:
    """Those of the own addresses that the name stands for; all if it can't be told."""
    named = fixed.addresses()
    if fixed.name in ("localhost", LOOPBACK, "::1"):
        return named
    # A host's own name is often an address of the loopback interface there, and only there.
    return [address for address in own if address in named] or list(own)
