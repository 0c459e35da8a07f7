"""Real processes find each other, and every descriptor leads to the right rank."""

from __future__ import annotations

import os
import socket
import statistics
import time

import pytest
from bootstrap_ranks import KEY, ranks

from horovod._bootstrap.identity import Identity
from horovod._bootstrap.rendezvous.server import RendezvousServer
from horovod._bootstrap.world import World, connect, shared_memory
from horovod._bootstrap.world.builder import CONTROL, Builder
from horovod._net.connector import Connector


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize(("asked", "given"), [("shm", "shm"), ("tcp", "tcp"), ("auto", "shm")])
def test_all_ranks_are_connected(size: int, asked: str, given: str) -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        running.start_all(size, port=server.port, transport=asked)
        results = running.results()
        pids = [process.pid for process in running.processes]
        for result in results:
            assert "error" not in result, result
            assert result["transport"] == given
            assert result["leaked"] == 0
            assert [pid for _, pid, _ in result["peers"]] == pids
        if given == "shm":
            assert all(same for result in results for _, _, same in result["peers"])


def test_hosts_are_what_the_launcher_says() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        running.start_all(5, port=server.port, transport="auto", hosts=["a", "b", "c", "a", "b"])
        for rank, result in enumerate(running.results()):
            assert "error" not in result, result
            assert (result["transport"], result["leaked"]) == ("hierarchical", 0)
            assert result["hosts"] == [0, 1, 2, 0, 1]
            assert [host for host, _, _ in result["peers"]] == ["a", "b", "c", "a", "b"]
            assert [same for _, _, same in result["peers"]] == [each % 3 == rank % 3 for each in range(5)]
            assert result["has_memory"] == (rank != 2)


def test_one_rank_on_each_host_has_nothing_to_share() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        running.start_all(3, port=server.port, transport="auto", hosts=["a", "b", "c"])
        assert [result["transport"] for result in running.results()] == ["tcp"] * 3


def test_several_streams() -> None:
    with RendezvousServer(KEY) as server:
        for hosts, transport in ((["a", "b"], "hierarchical"), (["a", "b", "c", "d"], "tcp")):
            with ranks() as running:
                running.start_all(4, port=server.port, transport="auto", hosts=hosts, streams=3)
                for result in running.results():
                    assert "error" not in result, result
                    assert (result["transport"], result["leaked"]) == (transport, 0)


def test_all_ranks_have_as_many_streams() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        for rank in range(2):
            running.start(rank=rank, size=2, port=server.port, transport="tcp", streams=rank + 1)
        for result in running.results():
            assert "HOROVOD_STREAMS_PER_PEER must be the same on all ranks" in result["error"]


def test_a_hundred_rounds_on_one_server() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        running.start_all(3, port=server.port, transport="shm", rounds=100)
        results = running.results(240)
        for result in results:
            assert "error" not in result, result
            assert len(result["seconds"]) == 100
            assert result["leaked"] == 0
        assert server._membership.idle
        assert not server._membership._scopes
        print("median seconds", statistics.median(results[0]["seconds"]))


def test_different_scopes_do_not_meet() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        for scope in ("a", "b"):
            running.start_all(2, port=server.port, transport="auto", scope=scope)
        results = running.results()
        assert all("error" not in result for result in results)
        assert {pid for _, pid, _ in results[0]["peers"]}.isdisjoint(pid for _, pid, _ in results[2]["peers"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("stranger", [0, 1])
def test_memory_is_not_shared_with_another_user(stranger: int) -> None:
    """Though both have the key: the kernel tells who is at the other end of a Unix socket."""
    for transport in ("shm", "auto"):
        with RendezvousServer(KEY) as server, ranks() as running:
            for rank in range(2):
                user = 12345 if rank == stranger else 0
                running.start(rank=rank, size=2, port=server.port, transport=transport, user=user)
            for result in running.results():
                if transport == "shm":
                    assert "runs as another user" in result["error"], result
                else:
                    assert result["transport"] == "tcp", result


def test_who_offers_memory_checks_the_user_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other end might not: it gets neither a connection nor the memory."""
    identity = Identity(0, 2, 0, 2, 0, 1, "a", rendezvous=("127.0.0.1", 1), key=KEY)
    with Builder(identity, 10, 3, "scope") as builder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(b"\0horovod-test-" + os.urandom(8).hex().encode())
        listener.listen()
        builder.key, builder.memory = KEY, shared_memory.create([4096])
        builder._open_listeners([listener], [(CONTROL, 1)])
        monkeypatch.setattr("horovod._bootstrap.world.builder.os.geteuid", lambda: 12345)
        opened: list[socket.socket] = []
        target = [(socket.AF_UNIX, listener.getsockname())]
        purpose = builder._purpose(CONTROL, 1, 0)
        connector = Connector(builder._selector, KEY, purpose, target, lambda sock, _: opened.append(sock))
        deadline = time.monotonic() + 10
        while not opened:
            assert not connector.gave_up and time.monotonic() < deadline, connector.problem
            for key, _ in builder._selector.select(0.01):
                key.data()
        with opened[0] as sock:
            sock.settimeout(10)
            assert sock.recv(1) == b"" and not builder.links


def test_over_ipv6() -> None:
    try:
        server = RendezvousServer(KEY, "::1").start()
    except OSError:
        pytest.skip("no IPv6 here")
    with ranks() as running:
        running.start_all(2, host="::1", port=server.port, transport="tcp")
        assert [result.get("error") for result in running.results()] == [None, None]
    server.stop()


def test_one_rank_needs_no_sockets() -> None:
    before = os.listdir("/proc/self/fd")
    world = connect(
        Identity(0, 1, 0, 1, 0, 1, "here"),
        transport="auto",
        timeout=1,
        peer_timeout=1,
        process_sets=[],
        scope="",
        shm_bytes=lambda size: pytest.fail("not needed"),
    )
    assert os.listdir("/proc/self/fd") == before
    assert (world.transport, world.control_fds, world.mesh_fds, world.shm_fd) == ("single", [-1], None, -1)
    world.close()


def test_close_and_release() -> None:
    reader, writer = os.pipe()
    world = World(0, 1, 0, 1, "single", control_fds=[reader], liveness_fds=[-1])
    world.release()
    world.close()
    os.fstat(reader)
    world.control_fds = [reader]
    world.close()
    world.close()
    with pytest.raises(OSError):
        os.fstat(reader)
    os.close(writer)


@pytest.mark.parametrize(
    ("change", "text"), [({"transport": "ib"}, "transport 'ib'"), ({"timeout": 0}, "above 0 seconds")]
)
def test_misuse(change: dict[str, object], text: str) -> None:
    arguments = {"transport": "auto", "timeout": 1.0, "peer_timeout": 1.0, **change}
    with pytest.raises(ValueError, match=text):
        connect(
            Identity(0, 2, 0, 2, 0, 1, "here", ("127.0.0.1", 1), KEY),
            process_sets=[],
            scope="",
            shm_bytes=lambda size: (1,),
            **arguments,  # type: ignore[arg-type]
        )


def test_no_server_there() -> None:
    with RendezvousServer(KEY) as server:
        port = server.port
    with ranks() as running:
        running.start_all(2, port=port, transport="auto", timeout=1000)
        for result in running.results():
            assert f"cannot reach the rendezvous server at 127.0.0.1:{port}" in result["error"]
            assert result["leaked"] == 0
