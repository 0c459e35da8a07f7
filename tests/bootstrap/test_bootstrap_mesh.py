"""Who is connected for data between hosts at the start, and who later, when a process set needs it."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from horovod._bootstrap.world.lanes import lanes_of, pairs_of, peers_of
from horovod._bootstrap.world.mesh import Links, Mesh
from horovod._net.addresses import Endpoint
from horovod.errors import HorovodInternalError

KEY = b"k" * 32


def layouts(ranks: int, hosts: int) -> Iterable[tuple[int, ...]]:
    """All ways to spread so many ranks over up to so many hosts."""
    return itertools.product(range(hosts), repeat=ranks)


def test_lanes_are_those_of_the_core() -> None:
    # The same as in csrc/tests/test_hierarchical.cc.
    hosts = [7, 3, 7, 5, 7, 3]
    assert lanes_of(hosts, range(6)) == [[1, 3, 0], [5, 3, 2], [1, 3, 4]]


def test_every_layout() -> None:
    for hosts in layouts(5, 3):
        everyone = range(len(hosts))
        pairs = {(a, b) for a in everyone for b in peers_of(a, hosts) if a < b}
        assert pairs == pairs_of(hosts, everyone)
        assert all(hosts[a] != hosts[b] for a, b in pairs)
        for a in everyone:
            # It has a way to every other host, and its own lane leads to each member elsewhere.
            assert {hosts[b] for b in peers_of(a, hosts)} == {*hosts} - {hosts[a]}


@pytest.mark.parametrize(("count", "each"), [(2, 1), (2, 8), (16, 2), (128, 8)])
def test_a_rank_has_one_peer_on_each_other_host(count: int, each: int) -> None:
    hosts = [rank // each for rank in range(count * each)]
    for rank in (0, each - 1, count * each - 1):
        assert len(peers_of(rank, hosts)) == count - 1


class Ranks:
    """Threads that share a list, as ranks do by allgather."""

    def __init__(
        self, hosts: Sequence[int], keys: Sequence[bytes] = (), timeout: float = 20, streams: int = 1
    ) -> None:
        size = len(hosts)
        self.hosts = hosts
        self.meshes = [
            Mesh(rank, hosts, ["127.0.0.1"], keys[rank] if keys else KEY, timeout, False, streams)
            for rank in range(size)
        ]
        self._gathered: list[list[Endpoint]] = [[] for _ in hosts]
        self._barrier = threading.Barrier(size)

    def gather(self, rank: int) -> Callable[[list[Endpoint]], Sequence[list[Endpoint]]]:
        def gather(own: list[Endpoint]) -> Sequence[list[Endpoint]]:
            self._gathered[rank] = own
            self._barrier.wait(20)
            return self._gathered

        return gather

    def connect(self, members: Sequence[int], absent: Iterable[int] = ()) -> list[Links | Exception]:
        def one(rank: int) -> Links | Exception:
            if rank in absent:
                self.gather(rank)([])
                return {}
            try:
                return self.meshes[rank].connect(members, self.gather(rank), lambda: None)
            except HorovodInternalError as error:
                return error

        with ThreadPoolExecutor(len(self.hosts)) as pool:
            return list(pool.map(one, range(len(self.hosts))))


def said_to_each_other(a: socket.socket, b: socket.socket) -> bool:
    a.setblocking(True)
    b.setblocking(True)
    a.sendall(b"a")
    b.sendall(b"b")
    return (a.recv(1), b.recv(1)) == (b"b", b"a")


@pytest.mark.parametrize("streams", [1, 3])
def test_what_a_set_needs_is_connected_once(streams: int) -> None:
    ranks = Ranks([0, 0, 0, 1, 1, 2], streams=streams)
    members = [0, 4, 5]
    needed = {(0, 4)}  # rank 5 is alone on its host and has all lanes
    assert all(mesh.missing(members) == needed for mesh in ranks.meshes)
    links = ranks.connect(members)
    to_0, to_4 = ([(peer, stream) for stream in range(streams)] for peer in (0, 4))
    assert [list(each) for each in links if isinstance(each, dict)] == [to_4, [], [], [], to_0, []]
    for stream in range(streams):
        (a, _), (b, _) = links[0][4, stream], links[4][0, stream]  # type: ignore[index]
        with a, b:
            assert said_to_each_other(a, b)
    assert all(mesh.missing(members) == set() for mesh in ranks.meshes)
    assert ranks.connect(members) == [{}] * 6


def test_nothing_is_left_open_if_a_rank_does_not_come() -> None:
    before = len(os.listdir("/proc/self/fd"))
    ranks = Ranks([0, 0, 1, 1], timeout=0.5)
    results = ranks.connect([0, 3], absent=[3])
    assert "rank 0 could not be connected to rank 3" in str(results[0])
    assert "no answer for 0.5 s" in str(results[0])
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_one_that_can_not_be_reached_is_named() -> None:
    """And not a lower one that has not answered yet."""
    mesh = Mesh(5, [0, 0, 1, 1, 2, 2], ["127.0.0.1"], KEY, 30, False, 2)
    found: list[list[Endpoint]] = [[] for _ in range(6)]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            found[0], found[2] = [silent.getsockname()], [gone.getsockname()]
        with pytest.raises(HorovodInternalError, match=r"rank 5 .* to rank 2 .* \(Connection refused"):
            mesh.connect([0, 2, 5], lambda own: found, lambda: None)


def test_who_has_another_key_is_no_rank_of_this_world() -> None:
    ranks = Ranks([0, 0, 1, 1], [KEY, KEY, KEY, b"x" * 32], timeout=3)
    results = ranks.connect([0, 3])
    assert "rank 0 could not be connected to rank 3" in str(results[0])
    assert "rank 3 could not be connected to rank 0" in str(results[3])
