"""Builds the connections between the ranks of a world, watched by the rendezvous server."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from horovod._bootstrap.identity import Identity
from horovod._bootstrap.rendezvous.client import RendezvousClient
from horovod._bootstrap.rendezvous.protocol import CROWDED_SECONDS, HOST, MEET, READY
from horovod._bootstrap.rendezvous.roster import ranges_of, ranks_of, unpack_hosts
from horovod._bootstrap.topology import VARIABLE, apart, grouping
from horovod._bootstrap.world import shared_memory
from horovod._bootstrap.world.directory import Directory, info_of
from horovod._bootstrap.world.lanes import mesh_kinds, peers_of
from horovod._bootstrap.world.spreading import Spreading
from horovod._bootstrap.world.terms import terms
from horovod._bootstrap.world.tree import asked_by, neighbours_of, parents_of
from horovod._net import descriptors
from horovod._net.addresses import family_of
from horovod._net.connector import Address, Connector
from horovod._net.frames import Message
from horovod._net.handshake import Session, purpose_tag, world_key
from horovod._net.listener import Crowd, Listener
from horovod.errors import HorovodInternalError

CONTROL, LIVENESS = "control", "liveness"
# From a rank to the first one of its host: brings the memory, then closes
_NEIGHBOUR = "neighbour"
_TURN_SECONDS = 0.5
_LATE_SECONDS = 0.5  # a wake-up this late means that this process itself was stopped
# When waiting for others the server has the better explanation and speaks first.
_SERVER_FIRST_SECONDS = 2.0


class Builder:
    """One attempt to connect this rank.

    Whatever it opened and is not taken over is closed on exit.
    """

    def __init__(
        self,
        identity: Identity,
        timeout: float,
        peer_timeout: float,
        scope: str,
        client: RendezvousClient | None = None,
    ) -> None:
        """`client` is a connection to the rendezvous that has not joined, if there is one."""
        if identity.rendezvous is None or identity.key is None:
            raise ValueError(f"a job of {identity.size} ranks needs a rendezvous address and a job key")
        self._identity = identity
        self._key = identity.key
        self._rank, self._size = identity.rank, identity.size
        self._timeout = timeout
        # Also while the others of this host are not there yet: they have the processors then.
        self._peer_timeout = max(peer_timeout, CROWDED_SECONDS * _neighbours(identity))
        self._scope = scope
        self._deadline = time.monotonic() + timeout
        self._due = self._deadline  # when the next look at the time is due
        self._opened = contextlib.ExitStack()
        self._selector = selectors.DefaultSelector()
        self._opened.callback(self._selector.close)
        self._client = client
        if client is not None:
            client.extend(self._deadline)
            self._opened.callback(client.close)
        self._listeners: list[Listener] = []
        self._expected: dict[bytes, str] = {}
        self._connectors: dict[tuple[str, int], Connector] = {}
        self._roster: str | None = None  # the list of all ranks as it is sent, at rank 0
        self._spreading: Spreading | None = None
        self._machines: list[int] = []  # the number of each rank's host
        self._streams = 1  # connections that carry data between two ranks
        self._wanted: Sequence[int] | None = None  # the group of each rank according to the setting
        self._unreached: int | None = None  # a rank to which no connection could be made
        self.directory = known = Directory(identity.rank)
        self._name, self._address, self._endpoints = known.name, known.address, known.endpoints
        self.links: dict[tuple[str, int], socket.socket] = {}  # (kind, peer)
        self.sessions: dict[tuple[str, int], Session] = {}  # of each link
        self.key = b""  # of this world
        self.local_ranks = {identity.rank}  # those of this host or group
        # The number of each rank's host, or group, in order of appearance
        self.hosts: list[int] = []
        self.parents: list[int] = []  # the rank above each one, in the tree of control connections
        self.memory = -1  # shared by local_ranks
        self.transport = ""
        self.addresses: Sequence[str] = ()  # where others reach this rank

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._client is not None and error is not None:
            self._client.leave(f"gave up: {type(error).__name__}: {error}", self._unreached)
        self._discard()
        self._opened.close()

    def build(
        self,
        transport: str,
        groups: Sequence[int] | None,
        process_sets: Sequence[Sequence[int]],
        shm_bytes: Callable[[int], Sequence[int]],
        encryption: str = "none",
        streams: int = 1,
    ) -> None:
        """Connects; then `transport`, `links`, `memory`, `hosts` and `directory` hold the result."""
        self._wanted, self._streams = groups, streams
        client = self._meet_server()
        sockets: list[socket.socket] = []
        if transport != "shm":
            self.addresses = self._identity.addresses or (client.local_address,)
            sockets = [self._listen(family_of(address), (address, 0)) for address in self.addresses]
        self._join(transport, process_sets, encryption)

        info = info_of(self._identity.host, [sock.getsockname()[:2] for sock in sockets])
        if transport == "tcp":
            self._meet(info)
            met = self.transport = "tcp"
        elif transport == "mpi":  # needs no memory, and no connections that carry data
            met = self._meet_on_host(info, lambda ranks: (), False)
            self.transport = "mpi"
        else:
            met = self.transport = self._meet_on_host(info, shm_bytes, transport == "shm")
        if met == "shm":
            self._spread()
        else:
            self._build_mesh(sockets)
        self._share(READY)

    def build_alone(
        self, transport: str, process_sets: Sequence[Sequence[int]], encryption: str, streams: int
    ) -> None:
        """A world of one rank that others know of, as it may grow."""
        self._streams = streams
        self._meet_server()
        self._join(transport, process_sets, encryption)
        self._share(READY)

    # Stages

    def _meet_server(self) -> RendezvousClient:
        client = self._client
        if client is None:
            assert self._identity.rendezvous is not None
            keeper = "the launcher" if self._identity.discovery is None else "rank 0"
            client = RendezvousClient(
                self._identity.rendezvous, self._key, self._deadline, keeper, self._identity.rendezvous_is_own
            )
            self._client = client
            self._opened.callback(client.close)
        self._due = client.heard
        self._selector.register(client.sock, selectors.EVENT_READ, client.on_readable)
        return client

    def _join(self, transport: str, process_sets: Sequence[Sequence[int]], encryption: str) -> None:
        client = self._connected_client()
        client.send(
            {
                "type": "join",
                "scope": self._scope,
                "rank": self._rank,
                "size": self._size,
                "timeout": self._timeout,
                "remaining": max(0.0, self._deadline - time.monotonic()),
                "peer_timeout": self._peer_timeout,
                "host": self._identity.host,
                "pid": os.getpid(),
                "agree": terms(transport, encryption, self._streams, self._wanted, process_sets),
            }
        )
        self._run_until(
            lambda: client.world is not None, lambda: "the others have not joined", _SERVER_FIRST_SECONDS
        )
        assert client.world is not None
        self.key = world_key(self._key, self._scope, client.world["token"])
        self._machines = unpack_hosts(client.world["hosts"], self._size)
        self.hosts = self.directory.hosts = grouping(self._machines, self._wanted)
        self.parents = parents_of(self.hosts)

    def _share(self, stage: str, **message: Any) -> Message:
        client = self._connected_client()
        client.send({"type": "share", "stage": stage, **message})
        self._run_until(
            lambda: stage in client.shared,
            lambda: f"the others have not reached the stage {stage!r}",
            _SERVER_FIRST_SECONDS,
        )
        return client.shared[stage]

    def _meet(self, info: Message) -> None:
        """Hands in where this rank is to be reached, and learns the same of those around it in the
        tree of control connections, through which the list of all comes later.
        """
        near = neighbours_of(self._rank, self.parents)
        clash = apart(self._machines, self.hosts)
        asked = asked_by(self._rank, self._size, min(self.local_ranks), near)
        ranges = ranges_of([*asked, *(clash or ())])
        answer = self._share(MEET, value=info, of=ranges)
        self.directory.learn(ranks_of(ranges), answer["values"])
        if self._rank == 0:
            self._roster = answer["values"]
        if clash is not None:
            raise ValueError(
                f"{VARIABLE} puts {self._name(clash[0])} and {self._name(clash[1])} into one group, but "
                "only ranks of one host can be: make its groups smaller"
            )

    def _spread(self) -> None:
        """Gets the list of all ranks from the rank above, and passes it on to those below."""
        self._spreading = spreading = Spreading(self._selector, self._roster)
        above = self.parents[self._rank]
        for peer in neighbours_of(self._rank, self.parents):
            sock, session = self.links[CONTROL, peer], self.sessions[CONTROL, peer]
            if peer < self._rank:
                spreading.receive_from(sock, session)
            else:
                spreading.send_to(sock, session)

        def done() -> bool:
            # If the rank above has ended, the server says so.
            if spreading.problem and time.monotonic() > spreading.failed_at + _SERVER_FIRST_SECONDS:
                self._unreached = above
                raise HorovodInternalError(
                    f"the control connection of rank {self._rank} to {self._name(above)} failed: "
                    f"{spreading.problem}"
                )
            return spreading.through

        self._run_until(done, lambda: f"the list of the ranks has not come from {self._name(above)}")
        assert spreading.packed is not None
        self.directory.learn(range(self._size), spreading.packed)

    def _meet_on_host(self, info: Message, shm_bytes: Callable[[int], Sequence[int]], must: bool) -> str:
        """Brings the ranks of each host together at the first of them, which offers the memory to
        share; if there is only one host, also the control and liveness connections are made here.

        Returns the transport that this allows: "shm" if there is only one host, "hierarchical" if
        the ranks of each host share memory, else "tcp". The launcher's names decide who is on the
        same host; that the meeting succeeds is the proof.
        """
        host = self.hosts[self._rank]
        if must:  # whatever the hosts are called
            self.parents = parents_of([0] * self._size)
        local = [rank for rank in range(self._size) if must or self.hosts[rank] == host]
        self.local_ranks, first = set(local), local[0]
        whole = len(local) == self._size
        sizes = shm_bytes(len(local)) if len(local) > 1 else ()

        def links_of(rank: int) -> list[tuple[str, int]]:
            """To lower ranks; the first of them brings the memory."""
            above = self.parents[rank]
            if not whole:
                return [(_NEIGHBOUR, first)]
            near = [(LIVENESS, above), (CONTROL, above)]
            return near if above == first else [(_NEIGHBOUR, first), *near]

        links = links_of(self._rank)
        expected = [(kind, rank) for rank in local[1:] for kind, peer in links_of(rank) if peer == self._rank]
        sock: socket.socket | None = None
        if expected:
            sock = self._offer(info, sizes if self._rank == first else ())
        self._meet(info)
        offers = self.directory
        if sock is not None:
            # The processes of those right below are watched, too, later.
            count = len(expected) + len(neighbours_of(self._rank, self.parents))
            descriptors.require(count, f"the connections of rank {self._rank} to the other ranks of its host")
            self._open_listeners([sock], expected)
        problem = next((each for _, peer in links if (each := str(offers[peer].get("problem", "")))), "")
        if self._rank != first and not problem:
            addresses = [(kind, peer, "\0" + offers[peer]["unix"]) for kind, peer in links]
            problem = self._get_memory(addresses, sizes)
        if problem:
            problem = f"{self._name(self._rank)} does not share memory with {self._name(first)} ({problem})"
        problem = str(self._share(HOST, problem=problem)["problem"])
        if whole and not problem:
            for kind, peer in list(self.links):
                if kind == _NEIGHBOUR:
                    self.links.pop((kind, peer)).close()
            return "shm"
        if problem and must:
            raise ValueError(
                f"the transport 'shm' needs all ranks on one host, but {problem}; use 'auto' or 'tcp'"
            )
        if problem and self._wanted is not None:
            # Plain TCP would combine in another order than was asked for.
            raise ValueError(f"{VARIABLE} groups ranks that share memory, but {problem}; unset it")
        # With one rank on each host there is nothing to share.
        if whole or problem or len(set(self.hosts)) == self._size:
            self._discard()
            return "tcp"
        memory, self.memory = self.memory, -1
        self._discard()
        self.memory = memory
        return "hierarchical"

    def _offer(self, info: Message, sizes: Sequence[int]) -> socket.socket | None:
        """A place to connect to on this host; its first rank also makes the memory, if any."""
        try:
            if sizes:
                self.memory = shared_memory.create(sizes)
            # An abstract name: exists in this network namespace only and vanishes with the socket.
            sock = self._listen(socket.AF_UNIX, "\0horovod-" + os.urandom(16).hex())
        except OSError as error:
            info["problem"] = (
                f"rank {self._rank} has no {'shared memory' if sizes else 'socket'} to offer: {error}"
            )
            return None
        info["unix"] = sock.getsockname().decode()[1:]
        return sock

    def _get_memory(self, links: Sequence[tuple[str, int, str]], sizes: Sequence[int]) -> str:
        """Other ranks: makes these connections on this host (kind, peer, address), and gets the
        memory through the first one. Returns what prevents it, or "".
        """
        problem: list[str] = []
        brings_memory = links[0][:2]

        def receive(sock: socket.socket) -> None:
            try:
                descriptor = shared_memory.receive(sock, sizes)
            except OSError as error:
                problem.append(str(error))
                descriptor = -1
            if descriptor is not None:
                self.memory = descriptor
                self._selector.unregister(sock)

        def check(kind: str, peer: int, sock: socket.socket) -> None:
            pid, user = shared_memory.peer(sock)
            if user != os.geteuid():
                problem.append(f"{self._name(peer)} runs as another user, with the id {user}")
                return
            self.directory.pids[peer] = pid
            if sizes and (kind, peer) == brings_memory:
                self._selector.register(sock, selectors.EVENT_READ, lambda: receive(sock))

        def missing() -> list[int]:
            return [peer for kind, peer, _ in links if (kind, peer) not in self.links]

        def done() -> bool:
            problem.extend(connector.problem for connector in self._connectors.values() if connector.gave_up)
            return bool(problem) or (not missing() and (self.memory >= 0) == bool(sizes))

        for kind, peer, address in links:
            self._connect_to(kind, peer, [(socket.AF_UNIX, address)], check)
        self._run_until(
            done,
            lambda: f"no connection to {self._name((missing() or [links[0][1]])[0])} on the same host",
        )
        return problem[0] if problem else ""

    def _build_mesh(self, sockets: Sequence[socket.socket]) -> None:
        """TCP: the higher rank connects to the lower one; first in the tree, through which it learns
        where the others are.
        """
        rank, size = self._rank, self._size
        tree = [(CONTROL, peer) for peer in neighbours_of(rank, self.parents)]
        carriers = {"mpi": [], "hierarchical": peers_of(rank, self.hosts)}
        peers = [peer for peer in carriers.get(self.transport, range(size)) if peer != rank]
        wanted = [(kind, peer) for kind in mesh_kinds(self._streams) for peer in peers]
        wanted += [(LIVENESS, peer) for _, peer in tree]
        # The processes of those in the tree may be watched, too, later.
        descriptors.require(2 * len(tree) + len(wanted), f"the connections of rank {rank} to others")
        self._open_listeners(sockets, [(kind, peer) for kind, peer in tree + wanted if peer > rank])
        self._connect_all(tree)
        self._spread()
        self._connect_all(wanted)

    def _connect_all(self, wanted: Sequence[tuple[str, int]]) -> None:
        """Makes these connections of the mesh, or waits until they are made."""
        rank = self._rank
        for kind, peer in wanted:
            if peer < rank:
                targets = [(family_of(host), (host, port)) for host, port in self._endpoints(peer)]
                self._connect_to(kind, peer, targets)
        missing = [*reversed(wanted)]

        def connected() -> bool:
            for (kind, peer), connector in self._connectors.items():
                if connector.gave_up:
                    self._unreached = peer
                    raise HorovodInternalError(
                        f"rank {rank} could not make its {kind} connection to {self._name(peer)} at "
                        f"{self._address(peer)}: {connector.problem}"
                    )
            while missing and missing[-1] in self.links:
                missing.pop()
            return not missing

        def waiting() -> str:
            kind, peer = link = missing[-1]
            self._unreached = peer
            if peer > rank:
                return f"no {kind} connection from {self._name(peer)} arrived at {self._address(rank)}"
            problem = self._connectors[link].problem
            return f"no {kind} connection to {self._name(peer)} at {self._address(peer)} ({problem})"

        self._run_until(connected, waiting)

    # Tools

    def _listen(self, family: int, address: Address) -> socket.socket:
        sock = self._opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
        sock.bind(address)
        sock.listen((2 + self._streams) * self._size)
        return sock

    def _purpose(self, kind: str, initiator: int, acceptor: int) -> str:
        return f"{kind}|{initiator}|{acceptor}"

    def _open_listeners(self, sockets: Sequence[socket.socket], links: list[tuple[str, int]]) -> None:
        purposes = {self._purpose(kind, peer, self._rank): (kind, peer) for kind, peer in links}
        self._expected = {purpose_tag(self.key, purpose): purpose for purpose in purposes}

        def arrived(sock: socket.socket, purpose: str, session: Session) -> None:
            kind, peer = purposes[purpose]
            if sock.family == socket.AF_UNIX:
                pid, user = shared_memory.peer(sock)
                if user != os.geteuid():
                    sock.close()  # the other end says why
                    return
                self.directory.pids[peer] = pid
            else:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            earlier = self.links.pop((kind, peer), None)
            spreading = self._spreading if kind == CONTROL else None
            if earlier is not None:
                # The peer gave that attempt up before it had our answer: this is the one that it
                # has.
                if spreading is not None:
                    spreading.forget(earlier)
                earlier.close()
            if spreading is not None:
                spreading.send_to(sock, session)
            self.links[kind, peer], self.sessions[kind, peer] = sock, session
            first = self._rank == min(self.local_ranks)
            if sock.family == socket.AF_UNIX and kind != CONTROL and first and self.memory >= 0:
                # A peer that has gone meanwhile is the server's to report.
                with contextlib.suppress(OSError):
                    shared_memory.send(sock, self.memory)

        # Without a launcher of ours this process also has the rendezvous, in a thread.
        crowd = Crowd(len(links), threads=1 if self._identity.discovery is None or self._rank > 0 else 2)
        self._listeners = [
            Listener(self._selector, sock, self.key, self._expected, arrived, crowd) for sock in sockets
        ]

    def _connect_to(
        self,
        kind: str,
        peer: int,
        targets: Sequence[tuple[int, Address]],
        then: Callable[[str, int, socket.socket], None] | None = None,
    ) -> None:
        def on_open(sock: socket.socket, session: Session) -> None:
            self.links[kind, peer], self.sessions[kind, peer] = sock, session
            if then is not None:
                then(kind, peer, sock)

        purpose = self._purpose(kind, self._rank, peer)
        self._connectors[kind, peer] = Connector(self._selector, self.key, purpose, targets, on_open)

    def _discard(self) -> None:
        """Closes connections, memory and listeners."""
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        for connector in self._connectors.values():
            connector.close()
        self._connectors = {}
        for sock in self.links.values():
            with contextlib.suppress(KeyError):
                self._selector.unregister(sock)
            sock.close()
        self.links, self.sessions = {}, {}
        if self.memory >= 0:
            os.close(self.memory)
        self.memory = -1

    def _run_until(
        self, condition: Callable[[], bool], waiting: Callable[[], str], grace: float = 0.0
    ) -> None:
        """Serves all connections until the condition holds. Raises what the server reports."""
        client = self._connected_client()
        while not condition():
            if client.failure is not None:
                raise HorovodInternalError(client.failure)
            now = time.monotonic()
            if now - self._due > _LATE_SECONDS:
                client.heard += now - self._due
                self._deadline += now - self._due
            remaining = self._deadline + grace - now
            if remaining <= 0:
                raise HorovodInternalError(
                    f"rank {self._rank} was not connected within {self._timeout:g} s: {waiting()}; check "
                    "that the hosts can reach each other, or allow more with HOROVOD_GLOO_TIMEOUT_SECONDS"
                )
            if now - client.heard > self._peer_timeout:
                raise HorovodInternalError(
                    f"the rendezvous server at {client.server} has not been heard for "
                    f"{self._peer_timeout:g} s: {client.keeper} is stopped or its host can't be reached"
                )
            helpers: list[Connector | Listener] = [*self._connectors.values(), *self._listeners]
            waits = [helper.next_wait(now) for helper in helpers]
            wait = min(_TURN_SECONDS, remaining, *(each for each in waits if each is not None))
            self._due = now + wait
            for key, _ in self._selector.select(wait):
                key.data()
            now = time.monotonic()
            for helper in helpers:
                helper.tick(now)

    def _connected_client(self) -> RendezvousClient:
        assert self._client is not None
        return self._client


def _neighbours(identity: Identity) -> int:
    """How many ranks are on this host, as far as the launcher has told."""
    told = identity.discovery.local if identity.discovery is not None else None
    return identity.local_size if told is None else told[1]
