"""The collectives on JAX arrays.

Wherever an array is taken, any pytree of arrays will do: one leaf is the plain operation, more are a group
that travels together; results have the same structure. All functions work on values and, unless they say
otherwise, within jax.jit, grad and the like. Un-named operations are matched with the other ranks' by the
order in which they run, named ones by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod import _core
from horovod.common import collectives as common
from horovod.common.basics import Average
from horovod.common.handles import table
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax import arrays, compiled, differentiable
from horovod.jax.compression import Compression
from horovod.jax.operation import Operation

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]

_waiting: dict[int, tuple[Operation, list[int], Callable[[list[Any]], Any]]] = {}


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The ranks' arrays combined element by element with `op` (default: Average)."""
    op = common.reduce_op(op, average)
    how = Operation(_core.ALLREDUCE, name, op, 0, prescale_factor, postscale_factor, process_set)
    return compressed(how, tensor, compression)


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """The ranks' arrays one after another along the first dimension.

    It may differ from rank to rank, but not within jax.jit.
    """
    return _run(Operation(_core.ALLGATHER, name, process_set=process_set), tensor)


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The array of `root_rank`, which is a global rank also within a process set."""
    return _run(Operation(_core.BROADCAST, name, root_rank=root_rank, process_set=process_set), tensor)


def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends splits[r] rows to each rank r and returns the rows received, in rank order.

    Without splits every rank gets the same number of rows. With splits, which don't work within jax.jit:
    (output, received splits).
    """
    leaves, rebuild = _flattened(tensor)
    if not leaves:
        return tensor
    results = differentiable.run(_alltoall(splits, name, process_set), leaves)
    return rebuild(results) if splits is None else (rebuild(results[:-1]), results[-1])


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's rows of the combined arrays; the first ranks get one more if they don't divide evenly."""
    op = common.reduce_op(op, None)
    how = Operation(_core.REDUCESCATTER, name, op, 0, prescale_factor, postscale_factor, process_set)
    return compressed(how, tensor, compression)


grouped_allreduce = allreduce
grouped_allgather = allgather
grouped_reducescatter = reducescatter


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """allreduce() as a handle for poll() and synchronize(). Not within jax.jit."""
    op = common.reduce_op(op, average)
    how = Operation(_core.ALLREDUCE, name, op, 0, prescale_factor, postscale_factor, process_set)
    return _start(how, tensor)


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """allgather() as a handle."""
    return _start(Operation(_core.ALLGATHER, name, process_set=process_set), tensor)


def broadcast_async(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """broadcast() as a handle."""
    return _start(Operation(_core.BROADCAST, name, root_rank=root_rank, process_set=process_set), tensor)


def alltoall_async(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """alltoall() as a handle that always resolves to (output, received splits)."""
    return _start(_alltoall(splits, name, process_set), tensor)


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """reducescatter() as a handle."""
    op = common.reduce_op(op, None)
    return _start(
        Operation(_core.REDUCESCATTER, name, op, 0, prescale_factor, postscale_factor, process_set), tensor
    )


grouped_allreduce_async = allreduce_async
grouped_allgather_async = allgather_async
grouped_reducescatter_async = reducescatter_async


def poll(handle: int) -> bool:
    """Whether the operation is done, so that synchronize() would not block."""
    if handle not in _waiting:
        raise ValueError(f"handle {handle} is unknown or was synchronized already")
    return all(table.poll(part) for part in _waiting[handle][1])


def synchronize(handle: int) -> Any:
    """Waits and returns the output. None for a handle that is unknown or was synchronized already."""
    if handle not in _waiting:
        return None
    how, parts, rebuild = _waiting[handle]
    try:
        results = arrays.finish(how, parts)
    except KeyboardInterrupt:
        raise  # it goes on, and can be waited for again
    except BaseException:
        _waiting.pop(handle, None)
        raise
    if _waiting.pop(handle, None) is None:  # another thread has it
        return None
    return (rebuild(results[:-1]), results[-1]) if how.kind == _core.ALLTOALL else rebuild(results)


def join(device: int = -1) -> int:
    """Declares that this rank has no more data: until all joined, the others' allreduces go on without it.

    Averages still divide by the number of all ranks. Returns the rank that joined last. `device` is accepted
    for compatibility. Not within jax.jit.
    """
    compiled.wait_for_programs()
    return common.join(device)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set has called it. Not within jax.jit."""
    compiled.wait_for_programs()
    common.barrier(process_set)


def _alltoall(splits: Any, name: str | None, process_set: ProcessSet) -> Operation:
    if isinstance(splits, jax.core.Tracer):
        raise TypeError("hvd.alltoall() needs splits with values, got a traced array: call it outside of jit")
    if splits is None:
        return Operation(_core.ALLTOALL, name, process_set=process_set)
    numbers = np.asarray(splits)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError(f"splits must be 1-D integers, got {numbers.ndim}-D {numbers.dtype}")
    return Operation(_core.ALLTOALL, name, process_set=process_set, splits=tuple(map(int, numbers)))


def _flattened(tree: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    leaves, structure = jax.tree.flatten(tree)
    arrays = [leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf) for leaf in leaves]
    return arrays, lambda results: jax.tree.unflatten(structure, results)


def _run(how: Operation, tree: Any) -> Any:
    leaves, rebuild = _flattened(tree)
    return rebuild(differentiable.run(how, leaves)) if leaves else tree


def compressed(how: Operation, tree: Any, compression: Any) -> Any:
    """The results for what compression makes of the leaves."""
    leaves, rebuild = _flattened(tree)
    if not leaves:
        return tree
    pairs = [compression.compress(leaf) for leaf in leaves]
    results = differentiable.run(how, [leaf for leaf, _ in pairs])
    return rebuild(
        [compression.decompress(result, context) for result, (_, context) in zip(results, pairs, strict=True)]
    )


def _start(how: Operation, tree: Any) -> int:
    leaves, rebuild = _flattened(tree)
    if compiled.is_tracing(leaves):
        raise TypeError(
            f"{how.word[:-2]}_async() needs arrays with values, got a traced one: within jax.jit use "
            f"{how.word}, which XLA waits for where its result is used"
        )
    if not leaves:
        raise ValueError(f"{how.word[:-2]}_async() needs at least one array")
    if how.name is None:
        compiled.wait_for_programs()
    how = how.with_numbers()
    parts = arrays.start(how, leaves)
    _waiting[parts[0]] = (how, parts, rebuild)
    return parts[0]
