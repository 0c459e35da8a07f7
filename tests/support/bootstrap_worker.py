"""One rank of the bootstrap tests: connects, checks where every descriptor leads, reports as JSON."""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import sys
import time
from typing import Any

from horovod._bootstrap.identity import Identity
from horovod._bootstrap.rendezvous.client import RendezvousClient
from horovod._bootstrap.world import World, connect
from horovod._bootstrap.world.builder import Builder
from horovod._bootstrap.world.lanes import peers_of
from horovod._bootstrap.world.spreading import Spreading
from horovod._bootstrap.world.tree import neighbours_of
from horovod._net.handshake import Session

MEMORY_BYTES = 8192


def report(**values: Any) -> None:
    print(json.dumps({"pid": os.getpid(), "time": time.time(), **values}), flush=True)


def plan_fault(phase: str, number: int) -> None:
    """Sends this process a signal when it reaches the phase."""

    def strike() -> None:
        report(fault=phase)
        os.kill(os.getpid(), number)

    send, meet, mesh = RendezvousClient.send, Builder._meet_on_host, Builder._build_mesh
    spread = Builder._spread

    def faulty_send(self: RendezvousClient, message: dict[str, Any]) -> None:
        kind = message.get("stage", message["type"])
        if kind == phase:
            strike()
        send(self, message)
        if f"after {kind}" == phase:
            strike()

    def faulty_meet(self: Builder, *args: Any, **kwargs: Any) -> bool:
        if phase == "building":
            strike()
        return meet(self, *args, **kwargs)

    def faulty_mesh(self: Builder, *args: Any) -> None:
        if phase == "building":
            strike()
        mesh(self, *args)

    def faulty_spread(self: Builder) -> None:
        if phase == "spreading":
            strike()
        spread(self)

    Builder._spread = faulty_spread  # type: ignore[method-assign]
    RendezvousClient.send = faulty_send  # type: ignore[method-assign]
    Builder._meet_on_host = faulty_meet  # type: ignore[method-assign]
    Builder._build_mesh = faulty_mesh  # type: ignore[method-assign, assignment]


def live_elsewhere() -> None:
    """Rank 0's Unix socket can't be found, as from another host."""
    get = Builder._get_memory

    def lost(self: Builder, links: list[tuple[str, int, str]], *args: Any) -> str:
        return get(self, [(kind, peer, f"{address}-elsewhere") for kind, peer, address in links], *args)

    Builder._get_memory = lost  # type: ignore[method-assign]


def cut_short() -> None:
    """Rank 0's list of ranks goes nowhere: the connections are shut down instead."""

    def shut(self: Spreading, sock: socket.socket, session: Session) -> None:
        sock.shutdown(socket.SHUT_RDWR)

    Spreading.send_to = shut  # type: ignore[method-assign]


def exchange(descriptor: int, text: str) -> str:
    """Sends a line and receives one."""
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.settimeout(10)
        sock.sendall(text.encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            byte = sock.recv(1)
            assert byte, "closed"
            data += byte
        return data.decode().strip()


def meet(world: World) -> None:
    """A barrier: up to rank 0 and back."""
    for _ in range(2):
        for descriptor in world.control_fds:
            if descriptor >= 0:
                exchange(descriptor, "barrier")


def check(world: World) -> None:
    """Every descriptor leads to the right rank, is close-on-exec, and the memory is the same on all ranks."""
    for descriptor in [*world.control_fds, *world.liveness_fds, *(world.mesh_fds or []), world.shm_fd]:
        if descriptor >= 0:
            assert not os.get_inheritable(descriptor)
            assert os.get_blocking(descriptor)
    near = neighbours_of(world.rank, world.parents)
    for kind, descriptors in (("control", world.control_fds), ("liveness", world.liveness_fds)):
        assert len(descriptors) == world.size
        for peer, descriptor in enumerate(descriptors):
            if peer not in near:
                assert descriptor == -1
            else:
                assert exchange(descriptor, f"{kind} {world.rank}") == f"{kind} {peer}"
    if world.transport in ("tcp", "hierarchical"):
        assert world.mesh_fds is not None and len(world.mesh_fds) == world.size * world.streams
        assert world.shm_fd == -1 or world.transport == "hierarchical"
        everyone = [peer for peer in range(world.size) if peer != world.rank]
        wanted = everyone if world.hosts is None else peers_of(world.rank, world.hosts)
        for stream in range(world.streams):
            fds = world.mesh_fds[stream * world.size : (stream + 1) * world.size]
            assert [peer for peer, descriptor in enumerate(fds) if descriptor >= 0] == wanted
            for peer in wanted:
                assert exchange(fds[peer], f"mesh {stream} {world.rank}") == f"mesh {stream} {peer}"
        if world.transport == "hierarchical":
            check_local_memory(world)
    else:
        assert world.mesh_fds is None
        with mmap.mmap(world.shm_fd, MEMORY_BYTES) as memory:
            memory[world.rank] = world.rank + 1
            meet(world)
            assert list(memory[: world.size]) == [rank + 1 for rank in range(world.size)]
            assert not any(memory[world.size :])


def check_local_memory(world: World) -> None:
    """Only the ranks of this host see what is written to it. A rank that is alone on its host has none."""
    assert world.hosts is not None
    memory = mmap.mmap(world.shm_fd, MEMORY_BYTES) if world.shm_fd >= 0 else None
    if memory is not None:
        memory[world.rank] = world.rank + 1
    meet(world)
    own = {rank for rank, host in enumerate(world.hosts) if host == world.hosts[world.rank]}
    assert (memory is None) == (len(own) == 1)
    if memory is not None:
        assert {place for place, value in enumerate(memory[: world.size]) if value == place + 1} == own
        memory.close()


def main() -> None:
    plan = json.loads(sys.argv[1])
    rank, size = plan["rank"], plan["size"]
    address = (plan.get("host", "127.0.0.1"), plan["port"])
    hosts = plan.get("hosts", ["testhost"])
    addresses = tuple(plan.get("addresses", ()))
    key = bytes.fromhex(plan["key"])
    identity = Identity(rank, size, rank, size, 0, 1, hosts[rank % len(hosts)], address, key, addresses)
    if plan.get("user"):
        "load".encode("idna")  # the interpreter's files may be out of reach for that user
        os.setuid(plan["user"])
    if plan.get("phase"):
        plan_fault(plan["phase"], signal.Signals[plan["signal"]])
    if plan.get("elsewhere"):
        live_elsewhere()
    if plan.get("cut_short") and rank == 0:
        cut_short()
    before = sorted(os.listdir("/proc/self/fd"))
    seconds: list[float] = []
    began = time.time()
    result: dict[str, Any] = {}
    try:
        for number in range(plan.get("rounds", 1)):
            start = time.monotonic()
            world = connect(
                identity,
                transport=plan["transport"],
                groups=plan.get("groups"),
                timeout=plan.get("timeout", 20),
                peer_timeout=plan.get("peer_timeout", 10),
                process_sets=plan.get("process_sets", []),
                scope=f"{plan.get('scope', 'test')}.{number}",
                shm_bytes=lambda size: (MEMORY_BYTES,),
                streams=plan.get("streams", 1),
            )
            seconds.append(time.monotonic() - start)
            check(world)
            result = {
                "transport": world.transport,
                "peers": [[peer.host, peer.pid, peer.same_host] for peer in world.peers],
                "hosts": world.hosts,
                "has_memory": world.shm_fd >= 0,
            }
            world.close()
    except (RuntimeError, ValueError, KeyboardInterrupt) as error:
        result = {"error": str(error), "kind": type(error).__name__}
    after = sorted(os.listdir("/proc/self/fd"))
    report(**result, began=began, seconds=seconds, leaked=len(after) - len(before))


if __name__ == "__main__":
    main()
