"""Builds the connections between the ranks of a world while the rendezvous server watches over them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import horovod
from horovod._bootstrap import shared_memory
from horovod._bootstrap.auth import purpose_tag
from horovod._bootstrap.client import RendezvousClient
from horovod._bootstrap.dialer import Address, Dialer
from horovod._bootstrap.doorway import Doorway
from horovod._bootstrap.frames import Message
from horovod._bootstrap.identity import Identity
from horovod._bootstrap.membership import PROTOCOL, READY
from horovod.common.exceptions import HorovodInternalError

CONTROL, LIVENESS, MESH = "control", "liveness", "mesh"
_HOST_STAGE = "host"
_TURN_SECONDS = 0.5
_LATE_SECONDS = 0.5  # a wake-up this late means that this process itself was stopped
# When waiting for others the server has the better explanation and speaks first.
_SERVER_FIRST_SECONDS = 2.0


class Builder:
    """One attempt to connect this rank. Whatever it opened and is not taken over is closed on exit."""

    def __init__(self, identity: Identity, timeout: float, peer_timeout: float, scope: str) -> None:
        if identity.rendezvous is None or identity.key is None:
            raise ValueError(f"a job of {identity.size} ranks needs a rendezvous address and a job key")
        self._identity = identity
        self._key = identity.key
        self._rank, self._size = identity.rank, identity.size
        self._timeout, self._peer_timeout = timeout, peer_timeout
        self._scope = scope
        self._deadline = time.monotonic() + timeout
        self._due = self._deadline  # when the next look at the time is due
        self._opened = contextlib.ExitStack()
        self._selector = selectors.DefaultSelector()
        self._opened.callback(self._selector.close)
        self._client: RendezvousClient | None = None
        self._doorway: Doorway | None = None
        self._expected: dict[bytes, str] = {}
        self._dialers: dict[tuple[str, int], Dialer] = {}
        self._infos: list[Message] = []
        self._token = ""
        self._credentials: dict[int, int] = {}  # rank -> pid according to the kernel
        self._on_rank_zeros_host: list[bool] = [False] * identity.size
        self.links: dict[tuple[str, int], socket.socket] = {}  # (kind, peer)
        self.memory = -1
        self.transport = ""

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._client is not None and error is not None:
            self._client.leave(f"gave up: {type(error).__name__}: {error}")
        self._discard()
        self._opened.close()

    def build(self, transport: str, process_sets: Sequence[Sequence[int]], memory_bytes: int) -> None:
        """Connects; on return `transport`, `links`, `memory` and peer() hold the result."""
        assert self._identity.rendezvous is not None
        client = RendezvousClient(self._identity.rendezvous, self._key, self._deadline)
        self._client = client
        self._due = client.heard
        self._opened.callback(client.close)
        self._selector.register(client.sock, selectors.EVENT_READ, client.on_readable)

        info: Message = {
            "host": self._identity.host,
            "pid": os.getpid(),
            "pid_namespace": shared_memory.pid_namespace(),
        }
        tcp_listener: socket.socket | None = None
        unix_listener: socket.socket | None = None
        if transport != "shm":
            tcp_listener = self._listen(client.sock.family, (client.local_address, 0))
            info["tcp"] = tcp_listener.getsockname()[:2]
        if transport != "tcp" and self._rank == 0:
            unix_listener = self._offer_memory(info, memory_bytes)
        self._join(info, transport, process_sets)

        self.transport = "tcp"
        if transport != "tcp" and self._meet_on_host(unix_listener, memory_bytes, must=transport == "shm"):
            self.transport = "shm"
        else:
            self._discard()
            assert tcp_listener is not None
            self._build_mesh(tcp_listener)
        self._share(READY, None)

    def peer(self, rank: int) -> tuple[str, int, bool]:
        """Host, pid, and whether that pid can be watched from here."""
        info, own = self._infos[rank], self._infos[self._rank]
        if rank == self._rank:
            return info["host"], info["pid"], True
        together = self._on_rank_zeros_host[rank] and self._on_rank_zeros_host[self._rank]
        visible = self._credentials.get(rank, 0)
        if together and visible > 0:
            return info["host"], visible, True
        # The host's name as well: copies of a virtual machine may share what should be unique.
        same = info["pid_namespace"] == own["pid_namespace"] != "" and info["host"] == own["host"]
        return info["host"], info["pid"], same

    # Stages

    def _join(self, info: Message, transport: str, process_sets: Sequence[Sequence[int]]) -> None:
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
                "info": info,
                "agree": {
                    "the rendezvous protocol": str(PROTOCOL),
                    "the version of horovod": horovod.__version__,
                    "the transport": transport,
                    "the list of process sets": _bounded(
                        json.dumps([sorted(ranks) for ranks in process_sets])
                    ),
                },
            }
        )
        self._run_until(
            lambda: client.world is not None, lambda: "the others have not joined", _SERVER_FIRST_SECONDS
        )
        assert client.world is not None
        self._infos = client.world["infos"]
        self._token = client.world["token"]

    def _share(self, stage: str, value: Any) -> list[Any]:
        client = self._connected_client()
        client.send({"type": "share", "stage": stage, "value": value})
        self._run_until(
            lambda: stage in client.shared,
            lambda: f"the others have not reached the stage {stage!r}",
            _SERVER_FIRST_SECONDS,
        )
        return client.shared[stage]

    def _offer_memory(self, info: Message, memory_bytes: int) -> socket.socket | None:
        """Rank 0: creates the shared memory and the place to get it. Without it the world uses TCP."""
        try:
            self.memory = shared_memory.create(memory_bytes)
            # An abstract name: exists in this network namespace only and vanishes with the socket.
            listener = self._listen(socket.AF_UNIX, "\0horovod-" + secrets.token_hex(16))
        except OSError as error:
            info["unix_problem"] = f"rank 0 has no shared memory to offer: {error}"
            return None
        info["unix"] = listener.getsockname().decode()[1:]
        return listener

    def _meet_on_host(self, listener: socket.socket | None, memory_bytes: int, must: bool) -> bool:
        """True if all ranks share rank 0's host: each has connected to it there and holds its memory."""
        problem = str(self._infos[0].get("unix_problem", ""))
        if self._rank == 0:
            if listener is not None:
                expected = [(kind, rank) for rank in range(1, self._size) for kind in (CONTROL, LIVENESS)]
                self._open_doorway(listener, expected)
        elif not problem:
            problem = self._get_memory("\0" + self._infos[0]["unix"], memory_bytes)
        problems = self._share(_HOST_STAGE, problem)
        self._on_rank_zeros_host = [not each for each in problems]
        if all(self._on_rank_zeros_host):
            return True
        if must:
            rank = next(rank for rank, each in enumerate(problems) if each)
            raise ValueError(
                f"the transport 'shm' needs all ranks on one host, but {self._name(rank)} does not "
                f"share memory with {self._name(0)} ({problems[rank]}); use 'auto' or 'tcp'"
            )
        return False

    def _get_memory(self, address: str, memory_bytes: int) -> str:
        """Other ranks: connects to rank 0 on this host. Returns what prevents it, or ""."""
        problem: list[str] = []

        def receive(sock: socket.socket) -> None:
            try:
                descriptor = shared_memory.receive(sock, memory_bytes)
            except OSError as error:
                problem.append(str(error))
                descriptor = -1
            if descriptor is not None:
                self.memory = descriptor
                self._selector.unregister(sock)

        def on_control(sock: socket.socket) -> None:
            self.links[CONTROL, 0] = sock
            self._credentials[0] = shared_memory.peer_pid(sock)
            self._selector.register(sock, selectors.EVENT_READ, lambda: receive(sock))

        def on_liveness(sock: socket.socket) -> None:
            self.links[LIVENESS, 0] = sock

        def done() -> bool:
            problem.extend(dialer.problem for dialer in self._dialers.values() if dialer.gave_up)
            return bool(problem) or (len(self.links) == 2 and self.memory >= 0)

        self._dial(CONTROL, 0, socket.AF_UNIX, address, on_control)
        self._dial(LIVENESS, 0, socket.AF_UNIX, address, on_liveness)
        self._run_until(done, lambda: f"no connection to {self._name(0)} on the same host")
        return problem[0] if problem else ""

    def _build_mesh(self, listener: socket.socket) -> None:
        """TCP: the higher rank connects to the lower one."""
        rank, size = self._rank, self._size
        wanted = [(MESH, peer) for peer in range(size) if peer != rank]
        wanted += [
            (kind, peer) for kind in (CONTROL, LIVENESS) for peer in (range(1, size) if rank == 0 else [0])
        ]
        self._open_doorway(listener, [(kind, peer) for kind, peer in wanted if peer > rank])
        family = self._connected_client().sock.family

        def keep(kind: str, peer: int) -> Callable[[socket.socket], None]:
            return lambda sock: self.links.update({(kind, peer): sock})

        for kind, peer in wanted:
            if peer < rank:
                host, port = self._infos[peer]["tcp"]
                self._dial(kind, peer, family, (host, port), keep(kind, peer))

        def connected() -> bool:
            for (kind, peer), dialer in self._dialers.items():
                if dialer.gave_up:
                    raise HorovodInternalError(
                        f"rank {rank} could not make its {kind} connection to {self._name(peer)} at "
                        f"{self._address(peer)}: {dialer.problem}"
                    )
            return len(self.links) == len(wanted)

        def waiting() -> str:
            missing = next(link for link in wanted if link not in self.links)
            kind, peer = missing
            if peer > rank:
                return f"no {kind} connection from {self._name(peer)} arrived at {self._address(rank)}"
            problem = self._dialers[missing].problem
            return f"no {kind} connection to {self._name(peer)} at {self._address(peer)} ({problem})"

        self._run_until(connected, waiting)

    # Tools

    def _listen(self, family: int, address: Address) -> socket.socket:
        listener = self._opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listener.bind(address)
        listener.listen(3 * self._size)
        return listener

    def _purpose(self, kind: str, initiator: int, acceptor: int) -> str:
        return f"{self._scope}|{self._token}|{kind}|{initiator}|{acceptor}"

    def _open_doorway(self, listener: socket.socket, links: list[tuple[str, int]]) -> None:
        purposes = {self._purpose(kind, peer, self._rank): (kind, peer) for kind, peer in links}
        self._expected = {purpose_tag(self._key, purpose): purpose for purpose in purposes}

        def arrived(sock: socket.socket, purpose: str) -> None:
            kind, peer = purposes[purpose]
            del self._expected[purpose_tag(self._key, purpose)]  # each connection once
            self.links[kind, peer] = sock
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return
            self._credentials[peer] = shared_memory.peer_pid(sock)
            if kind == CONTROL:
                # A peer that has gone meanwhile is the server's to report.
                with contextlib.suppress(OSError):
                    shared_memory.send(sock, self.memory)

        self._doorway = Doorway(self._selector, listener, self._key, self._expected, arrived)

    def _dial(
        self, kind: str, peer: int, family: int, address: Address, on_open: Callable[[socket.socket], None]
    ) -> None:
        purpose = self._purpose(kind, self._rank, peer)
        self._dialers[kind, peer] = Dialer(self._selector, self._key, purpose, family, address, on_open)

    def _discard(self) -> None:
        """Closes connections, memory and the doorway."""
        if self._doorway is not None:
            self._doorway.close()
            self._doorway = None
        for dialer in self._dialers.values():
            dialer.close()
        self._dialers = {}
        for sock in self.links.values():
            with contextlib.suppress(KeyError):
                self._selector.unregister(sock)
            sock.close()
        self.links = {}
        if self.memory >= 0:
            os.close(self.memory)
        self.memory = -1

    def _run_until(
        self, condition: Callable[[], bool], waiting: Callable[[], str], grace: float = 0.0
    ) -> None:
        """Serves all connections until the condition holds; raises what the server reports, or at the end."""
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
                    f"{self._peer_timeout:g} s: the launcher is stopped or its host can't be reached"
                )
            helpers: list[Dialer | Doorway] = [*self._dialers.values()]
            if self._doorway is not None:
                helpers.append(self._doorway)
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

    def _name(self, rank: int) -> str:
        return f"rank {rank} (host {self._infos[rank]['host']}, pid {self._infos[rank]['pid']})"

    def _address(self, rank: int) -> str:
        host, port = self._infos[rank]["tcp"]
        return f"{host}:{port}"


def _bounded(text: str) -> str:
    """`text`, or its beginning and a hash: enough to compare and to recognise."""
    if len(text) <= 300:
        return text
    return f"{text[:200]}... (sha256 {hashlib.sha256(text.encode()).hexdigest()})"
