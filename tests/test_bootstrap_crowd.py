"""Many honest peers at once: nobody is crowded out, and nobody loses its place by trying again."""

from __future__ import annotations

import selectors
import socket
import time

from bootstrap_ranks import KEY

from horovod._bootstrap import doorway
from horovod._bootstrap.auth import Session, purpose_tag
from horovod._bootstrap.builder import MESH, Builder
from horovod._bootstrap.dialer import Dialer
from horovod._bootstrap.doorway import Doorway
from horovod._bootstrap.identity import Identity
from horovod._bootstrap.server import RendezvousServer

SLOW = 0.08  # seconds until an answer, of ranks that share a processor with many others


def test_slow_but_honest_peers_are_not_crowded_out() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    inside, outside = selectors.DefaultSelector(), selectors.DefaultSelector()
    arrived: list[str] = []
    opened: list[socket.socket] = []

    def accepted(sock: socket.socket, purpose: str, session: Session) -> None:
        arrived.append(purpose)
        opened.append(sock)

    door = Doorway(inside, listener, KEY, {purpose_tag(KEY, "x"): "x"}, accepted, capacity=20)
    targets = [(socket.AF_INET, listener.getsockname())]
    dialers = [Dialer(outside, KEY, "x", targets, lambda sock, _: opened.append(sock)) for _ in range(400)]
    deadline = time.monotonic() + 100
    challenged: dict[int, float] = {}  # since when, by socket
    while len(arrived) < len(dialers):
        assert not any(dialer.gave_up for dialer in dialers), f"{len(arrived)} made it"
        assert time.monotonic() < deadline, f"{len(arrived)} made it"
        for key, _ in inside.select(0.005):
            key.data()
        door.tick(time.monotonic())
        now = time.monotonic()
        for key, events in outside.select(0):
            if events & selectors.EVENT_WRITE or now >= challenged.setdefault(id(key.fileobj), now) + SLOW:
                challenged.pop(id(key.fileobj), None)
                key.data()
        for dialer in dialers:
            dialer.tick(now)
    door.close()
    for dialer in dialers:
        dialer.close()
    for sock in opened:
        sock.close()


def test_room_for_all_that_are_expected() -> None:
    with RendezvousServer(KEY, ["127.0.0.1", "127.0.0.2"], clients=5000) as server:
        assert all(door._capacity >= 5000 for door in server._doorways.values())
    # Without, the listeners of a process share what strangers may use up.
    with RendezvousServer(KEY, ["127.0.0.1", "127.0.0.2"]) as server:
        total = sum(door._capacity for door in server._doorways.values())
        assert total <= doorway.default_capacity()


def test_a_peer_that_tries_again_is_let_in() -> None:
    # It gave its first attempt up while the answer to it was on its way.
    identity = Identity(0, 2, 0, 1, 0, 2, "a", rendezvous=("127.0.0.1", 1), key=KEY)
    with Builder(identity, 10, 3, "scope") as builder:
        listener = socket.create_server(("127.0.0.1", 0))
        target = [(socket.AF_INET, listener.getsockname())]
        builder.key = KEY  # as if the world were known
        builder._open_doorways([listener], [(MESH, 1)])
        opened: list[socket.socket] = []
        for attempt in (1, 2):
            dialer = Dialer(
                builder._selector,
                KEY,
                builder._purpose(MESH, 1, 0),
                target,
                lambda sock, _: opened.append(sock),
            )
            deadline = time.monotonic() + 30
            while len(opened) < attempt:
                assert not dialer.gave_up, dialer.problem
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
