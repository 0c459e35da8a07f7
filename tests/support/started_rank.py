"""One rank of a job that horovodrun has not started: tells its place, computes, and starts again.

Modes: "well" (all of it), "die" (the last rank is killed, the others must raise), "absent" (the last rank
does not come), "key" (tells a key of the world).
"""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

import horovod.numpy as hvd
from horovod._bootstrap.identity import detect
from horovod.common.session import for_query


def total() -> float:
    return float(hvd.allreduce(np.arange(3.0) + hvd.rank(), op=hvd.Sum, name="sum")[2])


def well() -> None:
    hvd.init()
    size = hvd.size()
    assert total() == 2 * size + sum(range(size))
    place = f"{hvd.rank()}/{size} {hvd.local_rank()}/{hvd.local_size()} {hvd.cross_rank()}/{hvd.cross_size()}"
    rank = hvd.rank()
    hvd.shutdown()
    hvd.init()  # a second world of the same ranks
    assert total() == 2 * size + sum(range(size))
    hvd.shutdown()
    if rank < 2 <= size and "pairs" in sys.argv:
        hvd.init(comm=[1, 0])  # a third, in which some have another number
        assert (hvd.rank(), hvd.size(), total()) == (1 - rank, 2, 5.0)
        hvd.shutdown()
    loaded = "with mpi4py" if "mpi4py.MPI" in sys.modules else "without mpi4py"
    print(f"place {place} {loaded}\n", end="", flush=True)


def die() -> None:
    # The launcher ends the survivors too, perhaps before they have said what they saw.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hvd.init()
    try:
        total()
        if hvd.rank() == hvd.size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            total()
    except hvd.HorovodInternalError as error:
        print(f"rank {hvd.rank()} saw: {error}\n", end="", flush=True)
        raise


def absent() -> None:
    identity = detect()
    if identity.rank == identity.size - 1:
        time.sleep(1000)
        return
    try:
        hvd.init()
    except hvd.HorovodInternalError as error:
        print(f"rank {identity.rank} saw: {error}\n", end="", flush=True)
        raise


def key() -> None:
    hvd.init()
    print(f"key {for_query().derived_key('test').hex()}\n", end="", flush=True)
    hvd.shutdown()


{"well": well, "die": die, "absent": absent, "key": key}[sys.argv[1]]()
