"""The collectives on numpy arrays.

Functions ending in `_` work in place. Those with `async` return an int handle for poll() and synchronize();
their arrays must not change until then. Un-named operations are matched with the other ranks' by the order of
the calls, named ones by name. Wherever an array is read, anything that numpy.asarray() takes will do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horovod.common import collectives as common
from horovod.common.arrays import collectives
from horovod.common.basics import Average
from horovod.common.handles import table
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.numpy.compression import Compression, Compressor

Array = NDArray[Any]

poll = table.poll
synchronize = table.synchronize


def _readable(tensors: Iterable[ArrayLike]) -> list[Array]:
    return [np.asarray(tensor) for tensor in tensors]


def _writable(tensors: Iterable[Array]) -> list[Array]:
    arrays = list(tensors)
    for array in arrays:
        if not isinstance(array, np.ndarray) or not array.flags.writeable:
            raise ValueError(
                f"an operation in place needs a writable numpy array, got {type(array).__name__}"
            )
    return arrays


def allreduce_async(
    tensor: ArrayLike,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """allreduce() as a handle."""
    op = common.reduce_op(op, average)
    return collectives.allreduce(
        [np.asarray(tensor)], name, op, prescale_factor, postscale_factor, process_set
    )


def allreduce_async_(
    tensor: Array,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """allreduce_() as a handle."""
    op = common.reduce_op(op, average)
    return collectives.allreduce(
        _writable([tensor]), name, op, prescale_factor, postscale_factor, process_set, in_place=True
    )


def allreduce(
    tensor: ArrayLike,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """The ranks' arrays combined element by element with `op` (default: Average), as a new array."""
    op = common.reduce_op(op, average)
    array, context = compression.compress(np.asarray(tensor))
    handle = collectives.allreduce([array], name, op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(table.synchronize(handle), context)


def allreduce_(
    tensor: Array,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """allreduce() that overwrites its array and returns it."""
    op = common.reduce_op(op, average)
    handle = collectives.allreduce(
        _writable([tensor]), name, op, prescale_factor, postscale_factor, process_set, in_place=True
    )
    table.synchronize(handle)
    return tensor


def grouped_allreduce_async(
    tensors: Iterable[ArrayLike],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """grouped_allreduce() as a handle that resolves to a tuple."""
    op = common.reduce_op(op, average)
    return collectives.allreduce(
        _readable(tensors), name, op, prescale_factor, postscale_factor, process_set, grouped=True
    )


def grouped_allreduce_async_(
    tensors: Iterable[Array],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """grouped_allreduce_() as a handle that resolves to a tuple."""
    op = common.reduce_op(op, average)
    return collectives.allreduce(
        _writable(tensors),
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        in_place=True,
        grouped=True,
    )


def grouped_allreduce(
    tensors: Iterable[ArrayLike],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """allreduce() of several arrays that are reduced together, once all are there on all ranks."""
    op = common.reduce_op(op, average)
    compressed = [compression.compress(array) for array in _readable(tensors)]
    arrays = [array for array, _ in compressed]
    handle = collectives.allreduce(
        arrays, name, op, prescale_factor, postscale_factor, process_set, grouped=True
    )
    return _decompress(table.synchronize(handle), compressed, compression)


def grouped_allreduce_(
    tensors: Iterable[Array],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """grouped_allreduce() that overwrites its arrays and returns them."""
    op = common.reduce_op(op, average)
    arrays = _writable(tensors)
    handle = collectives.allreduce(
        arrays, name, op, prescale_factor, postscale_factor, process_set, in_place=True, grouped=True
    )
    table.synchronize(handle)
    return arrays


def allgather_async(
    tensor: ArrayLike, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """allgather() as a handle."""
    return collectives.allgather([np.asarray(tensor)], name, process_set)


def allgather(
    tensor: ArrayLike, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """The ranks' arrays one after another along the first dimension, which may differ from rank to rank."""
    result: Array = table.synchronize(allgather_async(tensor, name, process_set))
    return result


def grouped_allgather_async(
    tensors: Iterable[ArrayLike], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """grouped_allgather() as a handle that resolves to a tuple."""
    return collectives.allgather(_readable(tensors), name, process_set, grouped=True)


def grouped_allgather(
    tensors: Iterable[ArrayLike], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Array]:
    """allgather() of several arrays together."""
    return list(table.synchronize(grouped_allgather_async(tensors, name, process_set)))


def broadcast_async(
    tensor: ArrayLike, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """broadcast() as a handle."""
    return collectives.broadcast(np.asarray(tensor), root_rank, name, process_set)


def broadcast_async_(
    tensor: Array, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """broadcast_() as a handle."""
    return collectives.broadcast(_writable([tensor])[0], root_rank, name, process_set, in_place=True)


def broadcast(
    tensor: ArrayLike, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """The array of `root_rank`, which is a global rank also within a process set."""
    result: Array = table.synchronize(broadcast_async(tensor, root_rank, name, process_set))
    return result


def broadcast_(
    tensor: Array, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """broadcast() that overwrites its array and returns it."""
    table.synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return tensor


def alltoall_async(
    tensor: ArrayLike,
    splits: ArrayLike | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """alltoall() as a handle that always resolves to (output, received splits)."""
    return collectives.alltoall(np.asarray(tensor), splits, name, process_set)


def alltoall(
    tensor: ArrayLike,
    splits: ArrayLike | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Array | tuple[Array, Array]:
    """Sends splits[r] rows to each rank r and returns the rows received, in rank order.

    Without splits every rank gets the same number of rows. With splits: (output, received splits).
    """
    output, received = table.synchronize(alltoall_async(tensor, splits, name, process_set))
    return output if splits is None else (output, received)


def reducescatter_async(
    tensor: ArrayLike,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """reducescatter() as a handle."""
    op = common.reduce_op(op, None)
    return collectives.reducescatter(
        [np.asarray(tensor)], name, op, prescale_factor, postscale_factor, process_set
    )


def reducescatter(
    tensor: ArrayLike,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Array:
    """This rank's rows of the combined arrays; the first ranks get one more if they don't divide evenly."""
    array, context = compression.compress(np.asarray(tensor))
    handle = reducescatter_async(array, name, op, process_set, prescale_factor, postscale_factor)
    return compression.decompress(table.synchronize(handle), context)


def grouped_reducescatter_async(
    tensors: Iterable[ArrayLike],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """grouped_reducescatter() as a handle that resolves to a tuple."""
    op = common.reduce_op(op, None)
    arrays = _readable(tensors)
    return collectives.reducescatter(
        arrays, name, op, prescale_factor, postscale_factor, process_set, grouped=True
    )


def grouped_reducescatter(
    tensors: Iterable[ArrayLike],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Array]:
    """reducescatter() of several arrays together."""
    compressed = [compression.compress(array) for array in _readable(tensors)]
    arrays = [array for array, _ in compressed]
    handle = grouped_reducescatter_async(arrays, name, op, process_set, prescale_factor, postscale_factor)
    return _decompress(table.synchronize(handle), compressed, compression)


def join(device: int = -1) -> int:
    """Declares that this rank has no more data: until all joined, the others' allreduces go on without it.

    Averages still divide by the number of all ranks. Returns the rank that joined last. `device` is accepted
    for compatibility.
    """
    return common.join()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set has called it."""
    common.barrier(process_set)


def _decompress(
    outputs: Iterable[Array], compressed: list[tuple[Array, Any]], compression: type[Compressor]
) -> list[Array]:
    return [
        compression.decompress(output, context)
        for output, (_, context) in zip(outputs, compressed, strict=True)
    ]
