"""Connections that carry data between ranks of different hosts, made when a process set needs them."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Sequence

from horovod._bootstrap.world.lanes import lanes_of, pairs_of
from horovod._net import descriptors
from horovod._net.addresses import Endpoint, elsewhere, family_of
from horovod._net.connector import Connector
from horovod._net.handshake import Session, purpose_tag
from horovod._net.listener import Crowd, Listener
from horovod.errors import HorovodInternalError

# What every rank gives, by rank
Gather = Callable[[list[Endpoint]], Sequence[list[Endpoint]]]
# By peer and stream
Links = dict[tuple[int, int], tuple[socket.socket, Session]]
_TURN_SECONDS = 0.1


class Mesh:
    """Which ranks of a world are connected, and how to connect more.

    At first those that share a lane of all ranks are. Every rank knows of all pairs, so that they
    agree on which are missing.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[int],
        addresses: Sequence[str],
        key: bytes,
        timeout: float,
        encrypted: bool,
        streams: int,
    ) -> None:
        self._rank, self._hosts = rank, hosts
        self._addresses = addresses  # of this rank, where others reach it
        self._key = key  # of the world
        self._timeout = timeout
        self.encrypted = encrypted
        self._streams = range(streams)  # connections between two ranks
        # [rank]: its lanes, of all ranks
        self._lanes: list[set[int]] = [set() for _ in hosts]
        for number, lane in enumerate(lanes_of(hosts, range(len(hosts)))):
            for member in lane:
                self._lanes[member].add(number)
        self._later: set[tuple[int, int]] = set()  # pairs that were connected after the start

    def missing(self, members: Iterable[int]) -> set[tuple[int, int]]:
        """The pairs that a set of ranks needs and that are not connected; the same on all ranks."""
        needed = pairs_of(self._hosts, members) - self._later
        return {pair for pair in needed if self._lanes[pair[0]].isdisjoint(self._lanes[pair[1]])}

    def connect(self, members: Iterable[int], gather: Gather, check: Callable[[], None]) -> Links:
        """New connections of this rank, in the order of the streams of each peer. All ranks call it
        with the same members.

        `gather` brings every rank's endpoints to all. `check` is called now and then and raises if
        waiting has become useless. HorovodInternalError names the peer that was not reached.
        """
        pairs = self.missing(members)
        if not pairs:
            return {}
        higher = [pair[1] for pair in pairs if pair[0] == self._rank]
        lower = [pair[0] for pair in pairs if pair[1] == self._rank]
        with contextlib.ExitStack() as opened:
            links: Links = {}
            opened.callback(_close, links)  # if this fails
            selector = opened.enter_context(selectors.DefaultSelector())
            wanted = {(peer, stream) for peer in higher + lower for stream in self._streams}
            descriptors.require(len(wanted), f"the connections of rank {self._rank} for a process set")
            doors = [self._listen(address, opened) for address in self._addresses] if higher else []
            found = gather([door.getsockname()[:2] for door in doors])
            connectors = self._connectors(selector, {peer: found[peer] for peer in lower}, links)
            helpers = [*self._listeners(selector, doors, higher, links), *connectors.values()]
            for helper in helpers:
                opened.callback(helper.close)
            deadline = time.monotonic() + self._timeout
            while links.keys() != wanted:
                check()
                now = time.monotonic()
                hopeless = [link for link, connector in connectors.items() if connector.gave_up]
                if now > deadline or hopeless:
                    peer, _ = link = min(hopeless or wanted - links.keys())
                    problem = connectors[link].problem if hopeless else f"no answer for {self._timeout:g} s"
                    raise HorovodInternalError(
                        f"rank {self._rank} could not be connected to rank {peer} for a process set "
                        f"({problem}); check that their hosts can reach each other"
                    )
                waits = [helper.next_wait(now) for helper in helpers]
                for key, _ in selector.select(min([_TURN_SECONDS, *(w for w in waits if w is not None)])):
                    key.data()
                for helper in helpers:
                    helper.tick(time.monotonic())
            self._later |= pairs
            taken = dict(sorted(links.items()))
            links.clear()
            return taken

    def _listen(self, address: str, opened: contextlib.ExitStack) -> socket.socket:
        sock = opened.enter_context(socket.socket(family_of(address), socket.SOCK_STREAM))
        sock.bind((address, 0))
        sock.listen(len(self._hosts) * len(self._streams))
        return sock

    def _listeners(
        self,
        selector: selectors.BaseSelector,
        doors: Sequence[socket.socket],
        higher: Sequence[int],
        links: Links,
    ) -> list[Connector | Listener]:
        """The higher rank connects to the lower one."""
        purposes = {
            f"later mesh.{stream}|{peer}|{self._rank}": (peer, stream)
            for peer in higher
            for stream in self._streams
        }

        def arrived(sock: socket.socket, purpose: str, session: Session) -> None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            earlier = links.pop(purposes[purpose], None)
            if earlier is not None:  # the peer gave that attempt up before it had our answer
                earlier[0].close()
            links[purposes[purpose]] = sock, session

        expected = {purpose_tag(self._key, purpose): purpose for purpose in purposes}
        crowd = Crowd(len(purposes))
        return [Listener(selector, door, self._key, expected, arrived, crowd) for door in doors]

    def _connectors(
        self, selector: selectors.BaseSelector, found: dict[int, list[Endpoint]], links: Links
    ) -> dict[tuple[int, int], Connector]:
        """By peer and stream."""

        def keep(link: tuple[int, int]) -> Callable[[socket.socket, Session], None]:
            def on_open(sock: socket.socket, session: Session) -> None:
                links[link] = sock, session

            return on_open

        connectors: dict[tuple[int, int], Connector] = {}
        for peer, endpoints in found.items():
            targets = [(family_of(host), (host, port)) for host, port in elsewhere(endpoints)]
            for stream in self._streams:
                purpose = f"later mesh.{stream}|{self._rank}|{peer}"
                on_open = keep((peer, stream))
                connectors[peer, stream] = Connector(selector, self._key, purpose, targets, on_open)
        return connectors


def _close(links: Links) -> None:
    for sock, _ in links.values():
        sock.close()
