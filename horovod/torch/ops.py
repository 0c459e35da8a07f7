"""The collectives on torch tensors.

Functions ending in `_` work in place. Those with `async` return an int handle for poll() and synchronize();
their tensors must not change until then. Un-named operations are matched with the other ranks' by the order
of the calls, named ones by name. The blocking functions that return new tensors are differentiable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor
from torch.autograd.graph import increment_version

from horovod.common import collectives as common
from horovod.common.basics import Average
from horovod.common.handles import table
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import differentiable
from horovod.torch.compression import Compression, Compressor
from horovod.torch.tensors import collectives
from horovod.torch.uncompiled import uncompiled

Splits = Sequence[int] | Tensor

poll = uncompiled(table.poll)
synchronize = uncompiled(table.synchronize)
_submit_allgather = uncompiled(collectives.allgather)
_submit_alltoall = uncompiled(collectives.alltoall)
_submit_reducescatter = uncompiled(collectives.reducescatter)


def _readable(tensors: Iterable[Tensor]) -> list[Tensor]:
    checked = list(tensors)
    for tensor in checked:
        if not isinstance(tensor, Tensor):
            raise ValueError(f"a torch tensor is needed, got {type(tensor).__name__}")
    return checked


def _writable(tensors: Iterable[Tensor]) -> list[Tensor]:
    checked = _readable(tensors)
    for tensor in checked:
        if not tensor.is_contiguous() and _overlaps(tensor):
            raise ValueError(
                "an operation in place needs a tensor whose elements have a place each, got one of shape "
                f"{list(tensor.shape)} that was expanded; use tensor.clone()"
            )
        # As for any operation in place: autograd must see that what it saved for backward() has changed.
        increment_version(tensor)
    return checked


def _overlaps(tensor: Tensor) -> bool:
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


@uncompiled
def _submit_allreduce(
    tensors: Iterable[Tensor],
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    in_place: bool = False,
    grouped: bool = False,
) -> int:
    checked = _writable(tensors) if in_place else _readable(tensors)
    return collectives.allreduce(
        checked, name, op, prescale, postscale, process_set, in_place=in_place, grouped=grouped
    )


@uncompiled
def _submit_broadcast(
    tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet, in_place: bool = False
) -> int:
    [tensor] = _writable((tensor,)) if in_place else _readable((tensor,))
    return collectives.broadcast(tensor, root_rank, name, process_set, in_place=in_place)


def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """allreduce() as a handle; its result has no gradient."""
    op = common.reduce_op(op, average)
    return _submit_allreduce((tensor,), name, op, prescale_factor, postscale_factor, process_set)


def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """allreduce_() as a handle."""
    op = common.reduce_op(op, average)
    return _submit_allreduce(
        (tensor,), name, op, prescale_factor, postscale_factor, process_set, in_place=True
    )


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """The ranks' tensors combined element by element with `op` (default: Average), as a new tensor."""
    op = common.reduce_op(op, average)
    [tensor] = _readable((tensor,))
    sent, context = compression.compress(tensor)
    result = differentiable.allreduce(
        (sent,), name, op, prescale_factor, postscale_factor, process_set, False
    )
    return compression.decompress(result, context)


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """allreduce() that overwrites its tensor and returns it."""
    op = common.reduce_op(op, average)
    handle = _submit_allreduce(
        (tensor,), name, op, prescale_factor, postscale_factor, process_set, in_place=True
    )
    synchronize(handle)
    return tensor


def grouped_allreduce_async(
    tensors: Iterable[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """grouped_allreduce() as a handle that resolves to a tuple."""
    op = common.reduce_op(op, average)
    return _submit_allreduce(tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True)


def grouped_allreduce_async_(
    tensors: Iterable[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """grouped_allreduce_() as a handle that resolves to a tuple."""
    op = common.reduce_op(op, average)
    return _submit_allreduce(
        tensors,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        in_place=True,
        grouped=True,
    )


def grouped_allreduce(
    tensors: Iterable[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """allreduce() of several tensors that are reduced together, once all are there on all ranks."""
    op = common.reduce_op(op, average)
    sent, contexts = _compressed(tensors, compression)
    results = differentiable.allreduce(sent, name, op, prescale_factor, postscale_factor, process_set, True)
    return _decompressed(results, contexts, compression)


def grouped_allreduce_(
    tensors: Iterable[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """grouped_allreduce() that overwrites its tensors and returns them."""
    op = common.reduce_op(op, average)
    written = list(tensors)
    handle = _submit_allreduce(
        written, name, op, prescale_factor, postscale_factor, process_set, in_place=True, grouped=True
    )
    synchronize(handle)
    return written


def allgather_async(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """allgather() as a handle; its result has no gradient."""
    return _submit_allgather(_readable((tensor,)), name, process_set)


def allgather(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """The ranks' tensors one after another along the first dimension, which may differ from rank to rank."""
    result: Tensor = differentiable.allgather(_readable((tensor,)), name, process_set, False)
    return result


def grouped_allgather_async(
    tensors: Iterable[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """grouped_allgather() as a handle that resolves to a tuple."""
    return _submit_allgather(_readable(tensors), name, process_set, grouped=True)


def grouped_allgather(
    tensors: Iterable[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    """allgather() of several tensors together."""
    return list(differentiable.allgather(_readable(tensors), name, process_set, True))


def broadcast_async(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """broadcast() as a handle; its result has no gradient."""
    return _submit_broadcast(tensor, root_rank, name, process_set)


def broadcast_async_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """broadcast_() as a handle."""
    return _submit_broadcast(tensor, root_rank, name, process_set, in_place=True)


def broadcast(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """The tensor of `root_rank`, which is a global rank also within a process set."""
    return differentiable.broadcast(_readable((tensor,))[0], root_rank, name, process_set)


def broadcast_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """broadcast() that overwrites its tensor and returns it."""
    synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return tensor


def alltoall_async(
    tensor: Tensor,
    splits: Splits | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """alltoall() as a handle that always resolves to (output, received splits)."""
    return _submit_alltoall(_readable((tensor,))[0], splits, name, process_set)


def alltoall(
    tensor: Tensor,
    splits: Splits | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends splits[r] rows to each rank r and returns the rows received, in rank order.

    Without splits every rank gets the same number of rows. With splits, a list of ints or a 1-D int32 tensor:
    (output, received splits).
    """
    output, received = differentiable.alltoall(_readable((tensor,))[0], splits, name, process_set)
    return output if splits is None else (output, received)


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """reducescatter() as a handle; its result has no gradient."""
    op = common.reduce_op(op, None)
    return _submit_reducescatter(
        _readable((tensor,)), name, op, prescale_factor, postscale_factor, process_set
    )


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """This rank's rows of the combined tensors; the first ranks get one more if they don't divide evenly."""
    op = common.reduce_op(op, None)
    [tensor] = _readable((tensor,))
    sent, context = compression.compress(tensor)
    result = differentiable.reducescatter(
        (sent,), name, op, prescale_factor, postscale_factor, process_set, False
    )
    return compression.decompress(result, context)


def grouped_reducescatter_async(
    tensors: Iterable[Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """grouped_reducescatter() as a handle that resolves to a tuple."""
    op = common.reduce_op(op, None)
    return _submit_reducescatter(
        _readable(tensors), name, op, prescale_factor, postscale_factor, process_set, grouped=True
    )


def grouped_reducescatter(
    tensors: Iterable[Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """reducescatter() of several tensors together."""
    op = common.reduce_op(op, None)
    sent, contexts = _compressed(tensors, compression)
    results = differentiable.reducescatter(
        sent, name, op, prescale_factor, postscale_factor, process_set, True
    )
    return _decompressed(results, contexts, compression)


def join(device: int = -1) -> int:
    """Declares that this rank has no more data: until all joined, the others' allreduces go on without it.

    Averages still divide by the number of all ranks. Returns the rank that joined last. `device` is accepted
    for compatibility.
    """
    return common.join()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set has called it."""
    common.barrier(process_set)


def _compressed(tensors: Iterable[Tensor], compression: type[Compressor]) -> tuple[list[Tensor], list[Any]]:
    pairs = [compression.compress(tensor) for tensor in _readable(tensors)]
    return [tensor for tensor, _ in pairs], [context for _, context in pairs]


def _decompressed(
    results: Iterable[Tensor], contexts: list[Any], compression: type[Compressor]
) -> list[Tensor]:
    return [
        compression.decompress(result, context) for result, context in zip(results, contexts, strict=True)
    ]
