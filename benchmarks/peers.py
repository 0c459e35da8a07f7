"""The same work done by Horovod, by torch.distributed's gloo and by Open MPI, in the same processes.

Every class offers `allreduce(array)`, which returns a function that sums the array over the ranks in place,
and where it can `step(memory, shapes)`: one that reduces ResNet-50's gradients as a training step does.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import horovod.numpy as hvd
from horovod.bench import resnet50

Array = NDArray[Any]
Work = Callable[[], object]

BUCKET_BYTES = 25 << 20  # what torch's DistributedDataParallel uses by default
_SETUP_LIMIT = datetime.timedelta(seconds=120)


class Ours:
    """Horovod through its numpy API."""

    def allreduce(self, array: Array) -> Work:
        return lambda: hvd.allreduce_(array, name="peers.allreduce", op=hvd.Sum)

    def step(self, memory: Array, shapes: resnet50.Parameters) -> Work:
        gradients = resnet50.views(memory, shapes)

        def run() -> None:
            handles = [hvd.allreduce_async_(array, name=name, op=hvd.Sum) for name, array in gradients]
            for handle in handles:
                hvd.synchronize(handle)

        return run


class Gloo:
    """torch.distributed over loopback TCP, one thread per rank. `store` is a path that all ranks share."""

    def __init__(self, store: str) -> None:
        import torch
        import torch.distributed

        torch.set_num_threads(1)
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=hvd.rank(),
            world_size=hvd.size(),
            timeout=_SETUP_LIMIT,
        )
        self._torch: Any = torch

    def allreduce(self, array: Array) -> Work:
        tensor, all_reduce = self._torch.from_numpy(array), self._torch.distributed.all_reduce
        return lambda: all_reduce(tensor)

    def step(self, memory: Array, shapes: resnet50.Parameters) -> Work:
        """Gradients are copied into buckets; each goes off as soon as it is full, and is copied back."""
        torch = self._torch
        buckets: list[tuple[Any, list[tuple[Any, Any]]]] = []
        for group in in_buckets([array for _, array in resnet50.views(memory, shapes)], BUCKET_BYTES):
            flat = torch.from_numpy(np.empty(sum(array.size for array in group), memory.dtype))
            slots = flat.split([array.size for array in group])
            tensors = [torch.from_numpy(array) for array in group]
            pairs = [(tensor, slot.view_as(tensor)) for tensor, slot in zip(tensors, slots, strict=True)]
            buckets.append((flat, pairs))

        def run() -> None:
            works = []
            for flat, pairs in buckets:
                for tensor, slot in pairs:
                    slot.copy_(tensor)
                works.append(torch.distributed.all_reduce(flat, async_op=True))
            for work, (_, pairs) in zip(works, buckets, strict=True):
                work.wait()
                for tensor, slot in pairs:
                    tensor.copy_(slot)

        return run

    def close(self) -> None:
        self._torch.distributed.destroy_process_group()


class OpenMpi:
    """MPI_Allreduce through mpi4py; only in processes that mpirun has started."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi: Any = MPI

    def allreduce(self, array: Array) -> Work:
        world, in_place = self._mpi.COMM_WORLD, self._mpi.IN_PLACE
        return lambda: world.Allreduce(in_place, array)


def in_buckets(arrays: list[Array], limit: int) -> list[list[Array]]:
    """The arrays in order, in groups that are closed once they hold `limit` bytes."""
    groups: list[list[Array]] = [[]]
    size = 0
    for array in arrays:
        if size >= limit:
            groups.append([])
            size = 0
        groups[-1].append(array)
        size += array.nbytes
    return groups
