"""Forks in every usual way while operations are under way; those go on and stay right."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fault_notes import Notes

import horovod.numpy as hvd


def by_subprocess() -> None:
    assert subprocess.run(["echo", "hi"], capture_output=True, check=True).stdout == b"hi\n"


def by_fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def by_pool() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]


WAYS: dict[str, Callable[[], None]] = {"subprocess": by_subprocess, "fork": by_fork, "pool": by_pool}

hvd.init()
rank, size = hvd.rank(), hvd.size()
total = size * (size + 1) / 2
for name, way in WAYS.items():
    for elements in (1000, 16 << 20):
        data = np.full(elements, rank + 1, np.float32)
        handle = hvd.allreduce_async_(data, name=f"{name} {elements}", op=hvd.Sum)
        way()
        hvd.synchronize(handle)
        assert data.min() == data.max() == total, (name, elements)
    # One that cannot be finished before the fork: rank 0 comes later.
    if rank == 0:
        way()
    handle = hvd.allreduce_async(np.full(10, rank + 1.0), name=f"{name} pending", op=hvd.Sum)
    if rank != 0:
        way()
    assert hvd.synchronize(handle)[0] == total
Notes(Path(sys.argv[-1])).write(f"done-{rank}")
