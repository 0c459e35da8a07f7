"""From an identity to connected descriptors: what the core needs to start."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from horovod._bootstrap.identity import Identity
from horovod._bootstrap.rendezvous.client import RendezvousClient
from horovod._bootstrap.topology import VARIABLE
from horovod._bootstrap.world.builder import CONTROL, LIVENESS, Builder
from horovod._bootstrap.world.lanes import mesh_kinds
from horovod._bootstrap.world.mesh import Mesh
from horovod._net.descriptors import raise_limit
from horovod._net.handshake import KEY_BYTES, Session
from horovod.errors import HorovodInternalError

TRANSPORTS = ("auto", "shm", "tcp", "mpi")


class Peer(NamedTuple):
    """Another rank, or this one."""

    host: str
    pid: int
    same_host: bool  # the pid can be watched from here


@dataclass
class World:
    """Connected, authenticated stream sockets, blocking and close-on-exec, owned by the holder of
    this.

    `control_fds` and `liveness_fds` have `size`: that of the rank above (`parents`) and those of
    the ranks right below lead there, the rest is -1. `mesh_fds` (tcp, hierarchical) has `size` for
    each of the `streams`, one stream after the other, own -1; hierarchical: only those that share a
    lane with this rank are there, `mesh` makes others.
    `shm_fd` is the memory that all ranks (shm) or those of this host (hierarchical, if more than
    one) share, otherwise -1.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    transport: str  # "single", "shm", "tcp", "hierarchical" or "mpi"
    peers: list[Peer] = field(default_factory=list)
    control_fds: list[int] = field(default_factory=list)
    liveness_fds: list[int] = field(default_factory=list)
    mesh_fds: list[int] | None = None
    streams: int = 1
    shm_fd: int = -1
    parents: list[int] = field(default_factory=lambda: [0])
    mesh: Mesh | None = None  # hierarchical
    hosts: list[int] | None = None  # hierarchical: the number (from 0) of each rank's host or group
    # What is said over these descriptors is authenticated with; None for the own entry.
    control_sessions: list[Session | None] = field(default_factory=list)
    liveness_sessions: list[Session | None] = field(default_factory=list)
    # Those of mesh_fds, if they are to be encrypted
    mesh_sessions: list[Session | None] | None = None
    key: bytes = field(default=b"", repr=False)  # known to the ranks of this world only; never sent

    def release(self) -> None:
        """The descriptors have a new owner: forgets them, so that close() does nothing."""
        self.control_fds, self.liveness_fds = [], []
        self.mesh_fds, self.shm_fd = None, -1

    def close(self) -> None:
        """Closes what is still owned. Harmless if repeated."""
        descriptors = [*self.control_fds, *self.liveness_fds, *(self.mesh_fds or ()), self.shm_fd]
        self.release()
        for descriptor in descriptors:
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)


def connect(
    identity: Identity,
    *,
    transport: str,
    groups: Sequence[int] | None = None,
    timeout: float,
    peer_timeout: float,
    process_sets: Sequence[Sequence[int]],
    scope: str,
    shm_bytes: Callable[[int], Sequence[int]],
    encryption: str = "none",
    streams: int = 1,
    client: RendezvousClient | None = None,
) -> World:
    """Connects this process to all others that call it with the same `scope`.

    `transport` is "auto" (shared memory within each host, TCP between hosts), "shm", "tcp", or
    "mpi": then MPI moves the data, and only control and liveness connections are made here. Ranks
    are on one host if the launcher gave them the same host name and they find each other there.
    `groups`, one number a rank, divides the hosts further, as if there were more of them. `timeout`
    seconds bound the whole; a rank that doesn't react for `peer_timeout` seconds is given up.
    `process_sets` must be the same on all ranks. `shm_bytes(size)` are the amounts of memory that
    `size` ranks of a host can share, the best one first. With `encryption` "data" what goes through mesh_fds
    is encrypted; of these there are `streams` between two ranks. `client` is a connection to the
    rendezvous that is there already, in an elastic job: it is closed here, and then even a rank
    that is alone reports there.

    Raises HorovodInternalError on all ranks, naming the culprit, if one fails; ValueError if the
    arguments are wrong, or "shm" was asked for and the ranks are not on one host. Whatever is
    raised, nothing stays open.
    """
    if transport not in TRANSPORTS:
        raise ValueError(f"transport {transport!r} must be one of {', '.join(TRANSPORTS)}")
    if groups is not None and transport != "auto":
        raise ValueError(
            f"{VARIABLE} groups ranks that share memory: it needs the transport 'auto', not {transport!r}"
        )
    if timeout <= 0 or peer_timeout <= 0:
        raise ValueError(f"timeout {timeout} and peer_timeout {peer_timeout} must be above 0 seconds")
    world = World(
        identity.rank,
        identity.size,
        identity.local_rank,
        identity.local_size,
        transport="single",
        peers=[Peer(identity.host, os.getpid(), True)],
        control_fds=[-1],
        liveness_fds=[-1],
        key=os.urandom(KEY_BYTES),
    )
    if identity.size == 1:
        if client is not None:
            with Builder(identity, timeout, peer_timeout, scope, client) as builder:
                builder.build_alone(transport, process_sets, encryption, streams)
        return world
    raise_limit()
    with Builder(identity, timeout, peer_timeout, scope, client) as builder:
        try:
            builder.build(transport, groups, process_sets, shm_bytes, encryption, streams)
        except OSError as error:
            raise HorovodInternalError(
                f"rank {identity.rank} could not connect to the others: {error}"
            ) from error
        world.streams = streams
        _take_over(world, builder, encryption)
    if world.hosts is not None:
        encrypted = encryption == "data"
        world.mesh = Mesh(world.rank, world.hosts, builder.addresses, world.key, timeout, encrypted, streams)
    return world


def _take_over(world: World, builder: Builder, encryption: str) -> None:
    """Moves the descriptors from the builder to the world."""
    world.transport = builder.transport
    world.peers = [Peer(*builder.directory.peer(rank)) for rank in range(world.size)]
    if world.transport == "hierarchical":
        world.hosts = builder.hosts
    links = builder.links
    for sock in links.values():
        sock.setblocking(True)

    def descriptors(kind: str, ranks: Sequence[int]) -> list[int]:
        return [links[kind, rank].fileno() if (kind, rank) in links else -1 for rank in ranks]

    def sessions(kind: str, ranks: Sequence[int]) -> list[Session | None]:
        return [builder.sessions.get((kind, rank)) for rank in ranks]

    everyone = range(world.size)
    world.parents = builder.parents
    world.control_fds, world.liveness_fds = descriptors(CONTROL, everyone), descriptors(LIVENESS, everyone)
    world.control_sessions = sessions(CONTROL, everyone)
    world.liveness_sessions = sessions(LIVENESS, everyone)
    world.key = builder.key
    if world.transport in ("tcp", "hierarchical"):
        kinds = mesh_kinds(world.streams)
        world.mesh_fds = [fd for kind in kinds for fd in descriptors(kind, everyone)]
        if encryption == "data":
            world.mesh_sessions = [session for kind in kinds for session in sessions(kind, everyone)]
    world.shm_fd, builder.memory = builder.memory, -1
    try:
        for sock in links.values():
            sock.detach()
        links.clear()
    except BaseException:  # an interrupt half way: from here on the world is the one that closes
        while links:
            links.popitem()[1].detach()
        world.close()
        raise
