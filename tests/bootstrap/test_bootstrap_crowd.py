"""Many honest peers at once: nobody is crowded out, and nobody loses its place by trying again."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bootstrap_ranks import KEY
from util_paths import ROOT

from horovod._bootstrap.discovery import first_rank
from horovod._bootstrap.identity import DiscoveryHints, Identity
from horovod._bootstrap.rendezvous.membership import Membership, Outgoing, failure
from horovod._bootstrap.rendezvous.server import RendezvousServer
from horovod._bootstrap.world import connect
from horovod._bootstrap.world.builder import Builder
from horovod._bootstrap.world.lanes import MESH
from horovod._net import listener as listeners
from horovod._net.connector import Connector
from horovod._net.frames import Message
from horovod._net.handshake import Session, purpose_tag
from horovod._net.listener import Crowd, Listener
from horovod.common.exceptions import HorovodInternalError

SLOW = 0.08  # seconds until an answer, of ranks that share a processor with many others


def test_slow_but_honest_peers_are_not_crowded_out() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    inside, outside = selectors.DefaultSelector(), selectors.DefaultSelector()
    arrived: list[str] = []
    opened: list[socket.socket] = []

    def accepted(sock: socket.socket, purpose: str, session: Session) -> None:
        arrived.append(purpose)
        opened.append(sock)

    crowd = Crowd()
    crowd.capacity = 20
    door = Listener(inside, listener, KEY, {purpose_tag(KEY, "x"): "x"}, accepted, crowd)
    targets = [(socket.AF_INET, listener.getsockname())]
    connectors = [
        Connector(outside, KEY, "x", targets, lambda sock, _: opened.append(sock)) for _ in range(400)
    ]
    deadline = time.monotonic() + 100
    challenged: dict[int, float] = {}  # since when, by socket
    while len(arrived) < len(connectors):
        assert not any(connector.gave_up for connector in connectors), f"{len(arrived)} made it"
        assert time.monotonic() < deadline, f"{len(arrived)} made it"
        for key, _ in inside.select(0.005):
            key.data()
        door.tick(time.monotonic())
        now = time.monotonic()
        for key, events in outside.select(0):
            if events & selectors.EVENT_WRITE or now >= challenged.setdefault(id(key.fileobj), now) + SLOW:
                challenged.pop(id(key.fileobj), None)
                key.data()
        for connector in connectors:
            connector.tick(now)
    door.close()
    for connector in connectors:
        connector.close()
    for sock in opened:
        sock.close()


def test_room_for_all_that_are_expected() -> None:
    assert RendezvousServer(KEY, clients=5000, threads=2)._crowd.capacity >= 5000


def test_all_doors_of_a_process_share_what_strangers_may_use_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also those of a rank 0 that has the rendezvous as well, as under mpirun: in two threads."""
    servers: list[RendezvousServer] = []

    class Noted(RendezvousServer):
        def start(self) -> RendezvousServer:
            servers.append(self)
            return super().start()

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(first_rank, "RendezvousServer", Noted)
    told = DiscoveryHints("test", "NOBODY_HAS_THIS", local=(0, 2))
    identity = Identity(0, 2, 0, 1, 0, 1, "a", discovery=told)
    with contextlib.ExitStack() as opened:
        monkeypatch.setattr(listeners, "limit", lambda: 400)
        place, _ = opened.enter_context(first_rank.discovered(identity, identity, [0, 1], "crowd", 10))
        builder = opened.enter_context(Builder(place, 10, 3, "scope"))
        builder.key = KEY  # as if the world were known
        sockets = [socket.create_server((host, 0), backlog=200) for host in ("127.0.0.1", "127.0.0.2")]
        builder._open_listeners(sockets, [(MESH, 1)])
        assert place.rendezvous is not None
        for address in [place.rendezvous, *(sock.getsockname() for sock in sockets)]:
            for _ in range(100):
                sock = opened.enter_context(socket.socket())
                sock.setblocking(False)
                sock.connect_ex(address)
        crowds = [servers[0]._crowd.strangers, builder._listeners[0]._crowd.strangers]
        most = 0
        until = time.monotonic() + 20
        while most < 100:
            assert time.monotonic() < until
            for key, _ in builder._selector.select(0.01):
                key.data()
            most = max(most, sum(map(len, crowds)))
        for _ in range(20):  # and it stays so
            for key, _ in builder._selector.select(0.01):
                key.data()
            for door in builder._listeners:
                door.tick(time.monotonic())
            assert sum(map(len, crowds)) <= 100


def test_a_rank_0_that_has_the_rendezvous_names_a_limit_that_is_too_low(tmp_path: Path) -> None:
    code = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))\n"
        "import horovod.numpy as hvd\n"
        "hvd.init()\n"
    )
    env = {
        "OMPI_COMM_WORLD_RANK": "0",
        "OMPI_COMM_WORLD_SIZE": "40",
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "40",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "rendezvous of 40 ranks" in done.stderr and "raise the hard limit" in done.stderr, done.stderr


def test_a_peer_that_tries_again_is_let_in() -> None:
    # It gave its first attempt up while the answer to it was on its way.
    identity = Identity(0, 2, 0, 1, 0, 2, "a", rendezvous=("127.0.0.1", 1), key=KEY)
    with Builder(identity, 10, 3, "scope") as builder:
        listener = socket.create_server(("127.0.0.1", 0))
        target = [(socket.AF_INET, listener.getsockname())]
        builder.key = KEY  # as if the world were known
        builder._open_listeners([listener], [(MESH, 1)])
        opened: list[socket.socket] = []
        for attempt in (1, 2):
            connector = Connector(
                builder._selector,
                KEY,
                builder._purpose(MESH, 1, 0),
                target,
                lambda sock, _: opened.append(sock),
            )
            deadline = time.monotonic() + 30
            while len(opened) < attempt:
                assert not connector.gave_up, connector.problem
                assert time.monotonic() < deadline
                for key, _ in builder._selector.select(0.01):
                    key.data()
        link = builder.links[MESH, 1]
        link.setblocking(True)
        link.sendall(b"x")
        opened[1].setblocking(True)
        assert opened[1].recv(1) == b"x"
        opened[0].setblocking(True)
        assert opened[0].recv(1) == b""  # the first one is closed
        for sock in opened:
            sock.close()


@pytest.mark.parametrize("told_by", ["horovodrun", "another launcher"])
def test_the_first_of_many_on_a_host_has_patience(told_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are still importing, and leave it little processor time to answer in."""
    joins: list[Message] = []

    def join(self: Membership, client: int, message: Message, now: float) -> list[Outgoing]:
        joins.append(message)
        return [failure(client, "that will do")]

    monkeypatch.setattr(Membership, "join", join)
    ours = told_by == "horovodrun"
    with RendezvousServer(KEY) as server, pytest.raises(HorovodInternalError, match="that will do"):
        identity = Identity(
            rank=0,
            size=400,
            local_rank=0,
            local_size=200 if ours else 1,
            cross_rank=0,
            cross_size=2 if ours else 1,
            host="a",
            rendezvous=("127.0.0.1", server.port),
            key=KEY,
            discovery=None if ours else DiscoveryHints("test", "NOBODY_HAS_THIS", local=(0, 200)),
        )
        connect(
            identity,
            transport="auto",
            timeout=20,
            peer_timeout=3.0,
            process_sets=[],
            scope="s",
            shm_bytes=lambda size: (),
        )
    assert joins[0]["peer_timeout"] == 10.0
