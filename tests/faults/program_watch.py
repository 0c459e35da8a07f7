"""Tells whom each rank watches, and dies of a signal or is stopped by one. Arguments: the victim, the
signal's name, and how many ranks may be right below one."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import numpy as np

import horovod.numpy as hvd
from horovod._bootstrap.world import tree
from horovod._bootstrap.world import world as worlds

victim, name, fan_out = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
tree.FAN_OUT = fan_out
take_over = worlds._take_over
watched: list[int] = []


def taken_over(world: worlds.World, *arguments: Any) -> None:
    """The descriptors are there."""
    take_over(world, *arguments)
    watched.extend(rank for rank, descriptor in enumerate(world.liveness_fds) if descriptor >= 0)
    assert watched == sorted(tree.neighbours_of(world.rank, world.parents))


worlds._take_over = taken_over
hvd.init()
print(f"rank {hvd.rank()} watches {len(watched)}", flush=True)
one = np.ones(4, np.float32)
try:
    for _ in range(10):
        assert hvd.allreduce(one, name="steps", op=hvd.Sum)[0] == hvd.size()
    hvd.barrier()
    if hvd.rank() == victim:
        os.kill(os.getpid(), signal.Signals[name])
    while True:
        hvd.allreduce(one, name="steps", op=hvd.Sum)
except hvd.HorovodInternalError as error:
    print(f"rank {hvd.rank()} says: {error}", flush=True)
    sys.exit(1)
