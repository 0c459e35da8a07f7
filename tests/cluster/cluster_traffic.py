"""One rank that measures allreduces: `cluster_traffic.py interface bytes repetitions [rate]`

`rate` is the most that one connection carries, in bytes a second. Rank 0 prints a line of JSON: seconds on
the slowest rank, and by host what its interface has sent meanwhile.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import horovod.numpy as hvd
from horovod._bootstrap.world import World
from horovod.common import startup

_SO_MAX_PACING_RATE = 47


def sent(interface: str) -> int:
    """Bytes that left through the interface of this network namespace, with all headers."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == interface:
            return int(numbers.split()[8])
    raise SystemExit(f"there is no interface {interface} here")


def limit_connections(rate: int, connect: Callable[..., World]) -> Callable[..., World]:
    """What some networks do to a connection TCP does here, whose packets are spaced out."""

    def limited(*args: object, **options: object) -> World:
        world = connect(*args, **options)
        for descriptor in world.mesh_fds or ():
            if descriptor >= 0:
                with socket.socket(fileno=os.dup(descriptor)) as sock:
                    sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, rate)
        return world

    return limited


def main() -> None:
    interface, count, repetitions = sys.argv[1], int(sys.argv[2]) // 4, int(sys.argv[3])
    if len(sys.argv) > 4:
        startup.worlds.connect = limit_connections(int(sys.argv[4]), startup.worlds.connect)
    hvd.init()
    data = np.full(count, hvd.rank() + 1, np.float32)
    total = np.empty_like(data)
    seconds, traffic = [], []
    for repetition in range(repetitions + 1):  # the first one warms up
        total[:] = data
        hvd.barrier()
        before, start = sent(interface), time.monotonic()
        hvd.allreduce_(total, op=hvd.Sum, name="measured")
        took = time.monotonic() - start
        hvd.barrier()
        mine = (os.environ["HOROVOD_HOSTNAME"], sent(interface) - before, took)
        everyone = hvd.allgather_object(mine, name="result")
        if repetition > 0:
            seconds.append(max(each[2] for each in everyone))
            traffic.append({host: moved for host, moved, _ in everyone})
    assert (total == hvd.size() * (hvd.size() + 1) / 2).all()
    if hvd.rank() == 0:
        print("measured", json.dumps({"seconds": seconds, "sent": traffic}))


if __name__ == "__main__":
    main()
