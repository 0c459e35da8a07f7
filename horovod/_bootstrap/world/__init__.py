"""From an identity to a connected world: authenticated sockets and shared memory for the core."""

from horovod._bootstrap.world.world import Peer, World, connect

__all__ = ["Peer", "World", "connect"]
