"""The list of ranks goes down a tree of connections, whatever their speed; nobody in between changes it."""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bootstrap_ranks import KEY, ranks

from horovod._bootstrap.identity import Identity
from horovod._bootstrap.rendezvous.membership import Outgoing
from horovod._bootstrap.rendezvous.protocol import MEET
from horovod._bootstrap.rendezvous.server import RendezvousServer
from horovod._bootstrap.world.builder import CONTROL, Builder
from horovod._bootstrap.world.spreading import Spreading
from horovod._net.connector import Connector
from horovod._net.frames import Sealer, encode
from horovod._net.handshake import Session

DOWN, UP = Session(b"d" * 32, b"u" * 32), Session(b"u" * 32, b"d" * 32)  # of the upper and the lower end
LONG = "x" * (2 << 20)  # more than a socket takes at once


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as selector:
        yield selector


def link() -> tuple[socket.socket, socket.socket]:
    upper, lower = socket.socketpair()
    upper.setblocking(False)
    lower.setblocking(False)
    return upper, lower


def turn(selector: selectors.BaseSelector) -> int:
    found = selector.select(0)
    for key, _ in found:
        key.data()
    return len(found)


def test_down_two_levels_and_nothing_stays_registered(selector: selectors.BaseSelector) -> None:
    """Whether a rank has those below it before it has the list, or after."""
    first, second = Spreading(selector, LONG), Spreading(selector)
    lowest = [Spreading(selector) for _ in range(3)]
    links = [link() for _ in range(4)]
    second.receive_from(links[0][1], UP)
    for each, (upper, lower) in zip(lowest, links[1:], strict=True):
        each.receive_from(lower, UP)
        second.send_to(upper, DOWN)
    assert first.through and not second.through
    first.send_to(links[0][0], DOWN)
    while turn(selector):
        pass
    for each in (first, second, *lowest):
        assert each.through and each.packed == LONG and not each.problem
    late, (upper, lower) = Spreading(selector), link()
    late.receive_from(lower, UP)
    second.send_to(upper, DOWN)
    assert not second.through
    while turn(selector):
        pass
    assert late.packed == LONG and not selector.get_map()
    ends = [*itertools.chain(*links), upper, lower]
    for sock in ends:
        with pytest.raises(BlockingIOError):
            sock.recv(1)  # nothing is left over for who uses it next
    for sock in ends:
        sock.close()


def test_one_that_does_not_read_holds_up_nobody(selector: selectors.BaseSelector) -> None:
    first, other = Spreading(selector, LONG), Spreading(selector)
    (slow, unread), (upper, lower) = link(), link()
    first.send_to(slow, DOWN)
    first.send_to(upper, DOWN)
    other.receive_from(lower, UP)
    while not other.through:
        assert turn(selector)
    assert not first.through
    unread.close()  # it is gone: that is for the server to say
    while not first.through:
        assert turn(selector)
    for sock in (slow, upper, lower):
        sock.close()


def test_a_connection_that_is_made_again(selector: selectors.BaseSelector) -> None:
    """Its other end has given the first one up, before the list is known or while it is sent."""
    for known in (True, False):
        upper_rank, lower_rank = Spreading(selector, LONG if known else None), Spreading(selector)
        (old, gone), (new, lower) = link(), link()
        upper_rank.send_to(old, DOWN)
        upper_rank.forget(old)
        old.close()
        upper_rank.send_to(new, DOWN)
        lower_rank.receive_from(lower, UP)
        if not known:
            top, below = link()
            upper_rank.receive_from(below, UP)
            Spreading(selector, LONG).send_to(top, DOWN)
        while not lower_rank.through:
            assert turn(selector)
        for sock in (gone, new, lower):
            sock.close()


def test_one_that_is_made_again_when_it_could_have_been_sent_to(selector: selectors.BaseSelector) -> None:
    upper, lower = link()
    spreading = Spreading(selector, "list")
    spreading.send_to(upper, DOWN)
    ready = selector.select(0)
    spreading.forget(upper)  # as another event of the same turn has it
    upper.close()
    for key, _ in ready:
        key.data()
    assert ready and spreading.through and not selector.get_map()
    lower.close()


def sealed(session: Session, message: dict[str, object]) -> bytes:
    body = encode(message)
    return Sealer(session.send).head(body) + body.content


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (sealed(DOWN.part("list of ranks"), {"ranks": "a"})[:-1] + b"]", "wrong authentication code"),
        (sealed(DOWN, {"ranks": "a"}), "wrong authentication code"),  # as if it were said later
        (sealed(DOWN.part("list of ranks"), {"ranks": 3}), "something else came"),
        (b"", "it was closed"),
    ],
)
def test_what_comes_instead(selector: selectors.BaseSelector, data: bytes, text: str) -> None:
    spreading, (upper, lower) = Spreading(selector), link()
    spreading.receive_from(lower, UP)
    upper.sendall(data)
    upper.close()
    began = time.monotonic()
    turn(selector)
    assert text in spreading.problem and not spreading.through
    assert began <= spreading.failed_at <= time.monotonic()
    assert not selector.get_map()
    lower.close()


def test_parts_of_a_session_have_nothing_in_common() -> None:
    parts = [DOWN, DOWN.part("a"), DOWN.part("b"), DOWN.part("a").part("a")]
    assert len({key for part in parts for key in (part.send, part.receive)}) == 8
    assert DOWN.part("a").send == UP.part("a").receive


def test_a_rank_that_connects_again_gets_the_list_there() -> None:
    """It gave its first attempt up while the answer to it was on its way."""
    identity = Identity(0, 2, 0, 1, 0, 2, "a", rendezvous=("127.0.0.1", 1), key=KEY)
    with Builder(identity, 10, 3, "scope") as builder, contextlib.ExitStack() as opened:
        listener = socket.create_server(("127.0.0.1", 0))
        target = [(socket.AF_INET, listener.getsockname())]
        long = 4 * LONG  # so that it is still being sent when the second one comes
        builder.key, builder._spreading = KEY, Spreading(builder._selector, long)
        builder._open_listeners([listener], [(CONTROL, 1)])
        purpose, below = builder._purpose(CONTROL, 1, 0), Spreading(builder._selector)
        found: list[tuple[socket.socket, Session]] = []
        deadline = time.monotonic() + 30

        def turn_until(done: Callable[[], bool]) -> None:
            while not done():
                assert time.monotonic() < deadline
                for key, _ in builder._selector.select(0.01):
                    key.data()

        for attempt in (1, 2):
            Connector(builder._selector, KEY, purpose, target, lambda *link: found.append(link))
            turn_until(lambda attempt=attempt: len(found) == attempt)
            opened.callback(found[-1][0].close)
        below.receive_from(*found[1])
        turn_until(lambda: below.through)
        assert below.packed == long and builder._spreading.through


@pytest.mark.parametrize("transport", ["tcp", "auto"])
def test_every_rank_knows_all_others(transport: str) -> None:
    """Down two levels: through the first rank of each host. Only rank 0 asks the server for all."""
    asked: list[int] = []

    def noted(client: int, message: dict[str, Any], now: float) -> list[Outgoing]:
        if message["stage"] == MEET:
            asked.append(sum(count for _, count in message["of"]))
        return share(client, message, now)

    with RendezvousServer(KEY) as server, ranks() as running:
        share = server._membership.share
        server._membership.share = noted  # type: ignore[method-assign]
        running.start_all(6, port=server.port, transport=transport, hosts=["a", "b"])
        pids = [process.pid for process in running.processes]
        for result in running.results():
            assert [peer[:2] for peer in result["peers"]] == [["ab"[n % 2], pids[n]] for n in range(6)]
    assert sorted(asked) == [2, 2, 2, 2, 4, 6]


def test_a_rank_that_gets_no_list_says_who_should_have_sent_it() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        running.start_all(2, port=server.port, transport="tcp", cut_short=True, timeout=20)
        pid = running.processes[0].pid
        text = f"the control connection of rank 1 to rank 0 (host testhost, pid {pid}) failed: it was closed"
        for result in running.results():
            assert text in result["error"] and result["leaked"] == 0, result
