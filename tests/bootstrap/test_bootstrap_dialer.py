"""A connector finds its peer behind the right one of several addresses."""

from __future__ import annotations

import selectors
import socket
import time

from bootstrap_ranks import KEY
from bootstrap_relay import Relay

from horovod._net.addresses import elsewhere, is_own
from horovod._net.connector import Connector
from horovod._net.handshake import Session, purpose_tag
from horovod._net.listener import Listener

OTHER_KEY = bytes(32)


def listen() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def serve(selector: selectors.BaseSelector, helpers: list[Connector | Listener], seconds: float) -> None:
    for key, _ in selector.select(seconds):
        key.data()
    for helper in helpers:
        helper.tick(time.monotonic())


def test_a_stranger_and_a_closed_port_do_not_matter() -> None:
    selector = selectors.DefaultSelector()
    closed = listen()
    addresses = [closed.getsockname()]
    closed.close()
    opened: list[socket.socket] = []
    arrived: list[str] = []

    def accepted(sock: socket.socket, purpose: str, _: Session) -> None:
        arrived.append(purpose)
        sock.close()

    helpers: list[Connector | Listener] = []
    for key in (OTHER_KEY, KEY):
        listener = listen()
        addresses.append(listener.getsockname())
        helpers.append(Listener(selector, listener, key, {purpose_tag(key, "x"): "x"}, accepted))
    targets = [(socket.AF_INET, address) for address in addresses]
    connector = Connector(selector, KEY, "x", targets, lambda sock, _: opened.append(sock))
    helpers.append(connector)
    deadline = time.monotonic() + 60
    while not opened:
        assert not connector.gave_up, connector.problem
        assert time.monotonic() < deadline
        serve(selector, helpers, 0.02)
    assert opened[0].getpeername() == addresses[2] and arrived == ["x"]
    opened[0].close()
    for helper in helpers:
        helper.close()


def test_a_relay_at_another_address_is_passed_by() -> None:
    """Who listens at one of the peer's addresses and passes everything on gets no connection."""
    selector = selectors.DefaultSelector()
    listener = listen()
    arrived: list[str] = []

    def accepted(sock: socket.socket, purpose: str, _: Session) -> None:
        arrived.append(purpose)
        sock.close()

    honest = listener.getsockname()
    with Relay(honest) as relay:
        accepting = Listener(selector, listener, KEY, {purpose_tag(KEY, "x"): "x"}, accepted)
        targets = [(socket.AF_INET, relay.address), (socket.AF_INET, honest)]
        opened: list[socket.socket] = []
        connector = Connector(selector, KEY, "x", targets, lambda sock, _: opened.append(sock))
        helpers: list[Connector | Listener] = [accepting, connector]
        deadline = time.monotonic() + 60
        while not opened:
            assert not connector.gave_up, connector.problem
            assert time.monotonic() < deadline
            serve(selector, helpers, 0.02)
        assert opened[0].getpeername() == honest
        assert relay.connections == 1
        while not arrived:
            serve(selector, helpers, 0.02)
        assert arrived == ["x"]
        opened[0].close()
        for helper in helpers:
            helper.close()


def test_own_addresses_are_not_those_of_a_peer_elsewhere() -> None:
    far, near = ("192.0.2.77", 5), ("127.0.0.1", 5)
    assert is_own("127.0.0.1") and not is_own("192.0.2.77") and not is_own("2001:db8::77")
    assert elsewhere([near, far]) == [far]
    assert elsewhere([near]) == [near]  # this machine by another name


def test_it_gives_up_after_all_rounds() -> None:
    selector = selectors.DefaultSelector()
    closed = [listen(), listen()]
    targets = [(socket.AF_INET, sock.getsockname()) for sock in closed]
    for sock in closed:
        sock.close()
    connector = Connector(selector, KEY, "x", targets, lambda sock, _: sock.close(), rounds=2)
    deadline = time.monotonic() + 60
    while not connector.gave_up:
        assert time.monotonic() < deadline
        serve(selector, [connector], 0.02)
    assert "refused" in connector.problem
