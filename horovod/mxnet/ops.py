"""The collectives on MXNet's arrays, mx.nd as well as mx.np; horovod.common.api says what they do.

They have the arguments of the original, whose `priority` is accepted and has no effect. All wait for results.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from horovod.common.api import Api
from horovod.common.basics import Average
from horovod.common.compression import NoneCompressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.mxnet.adapter import NDArray, NDArrayAdapter

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "reducescatter",
]

api: Api[NDArray, NDArray] = Api(NDArrayAdapter())


def allreduce(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> NDArray:
    """The ranks' arrays combined element by element with `op` (default: Average), as a new array."""
    scale = prescale_factor, postscale_factor
    return api.allreduce(tensor, average, name, NoneCompressor, op, *scale, process_set)


def allreduce_(
    tensor: NDArray,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> NDArray:
    """allreduce() that overwrites its array and returns it."""
    return api.allreduce_(tensor, average, name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce(
    tensors: Iterable[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[NDArray]:
    """allreduce() of several arrays that are reduced together, once all are there on all ranks."""
    scale = prescale_factor, postscale_factor
    return api.grouped_allreduce(tensors, average, name, NoneCompressor, op, *scale, process_set)


def grouped_allreduce_(
    tensors: Iterable[NDArray],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[NDArray]:
    """grouped_allreduce() that overwrites its arrays and returns them."""
    return api.grouped_allreduce_(tensors, average, name, op, prescale_factor, postscale_factor, process_set)


def allgather(
    tensor: NDArray,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """The ranks' arrays one after another along the first dimension, whose length may differ."""
    return api.allgather(tensor, name, process_set)


def grouped_allgather(
    tensors: Iterable[NDArray],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[NDArray]:
    """allgather() of several arrays together."""
    return api.grouped_allgather(tensors, name, process_set)


def broadcast(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """The array of `root_rank`, which is a global rank also within a process set."""
    return api.broadcast(tensor, root_rank, name, process_set)


def broadcast_(
    tensor: NDArray,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """broadcast() that overwrites its array and returns it."""
    return api.broadcast_(tensor, root_rank, name, process_set)


def alltoall(
    tensor: NDArray,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends splits[r] rows to each rank r and returns the rows received, in rank order.

    Without splits every rank gets the same number of rows. With splits, a list of ints or a 1-D int32 array:
    (output, received splits).
    """
    return api.alltoall(tensor, splits, name, process_set)


def reducescatter(
    tensor: NDArray,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> NDArray:
    """This rank's rows of the combined arrays; the first ranks may get one more than the others."""
    scale = prescale_factor, postscale_factor
    return api.reducescatter(tensor, name, NoneCompressor, op, process_set, *scale)


def grouped_reducescatter(
    tensors: Iterable[NDArray],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[NDArray]:
    """reducescatter() of several arrays together."""
    scale = prescale_factor, postscale_factor
    return api.grouped_reducescatter(tensors, name, NoneCompressor, op, process_set, *scale)
