"""Collectives on concrete JAX arrays: as numpy's, on views of their memory. Nothing is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod import _core
from horovod.common.arrays import Array, ArrayAdapter, dtype_code
from horovod.common.collectives import Collectives
from horovod.common.handles import table
from horovod.jax.operation import Operation

_ALIGNMENT = 64  # bytes: what XLA wants of memory that it is to use as it is
_WORTH_SHARING = 1 << 16  # bytes: copying less is quicker than handing it over


class _AlignedAdapter(ArrayAdapter):
    """Numpy arrays whose memory can become that of JAX arrays."""

    def empty_like(self, tensor: Array) -> Array:
        if tensor.nbytes < _WORTH_SHARING:
            return super().empty_like(tensor)
        memory = np.empty(tensor.nbytes + _ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        return memory[start : start + tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)


_collectives: Collectives[Array] = Collectives(_AlignedAdapter())


def is_traced(leaves: Sequence[Any]) -> bool:
    """Whether one of them has no value yet."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def check_dtype(leaf: Any, what: str) -> None:
    """ValueError if the engine does not know its elements."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise ValueError(f"{what} does not take typed keys: pass jax.random.key_data(key) as int32")
    try:
        dtype_code(np.dtype(leaf.dtype))
    except ValueError as error:
        raise ValueError(f"{what}: {error}; cast it first, with .astype() or .view()") from None


def start(operation: Operation, leaves: Sequence[Any]) -> list[int]:
    """Submits the operation: handles of horovod.common.handles.table, several if there are no such groups."""
    for leaf in leaves:
        check_dtype(leaf, operation.word)
    arrays = [np.asarray(leaf) for leaf in leaves]
    kind, name, op, root, prescale, postscale, process_set, splits, *_ = operation
    grouped = len(arrays) > 1
    if kind == _core.ALLREDUCE:
        return [_collectives.allreduce(arrays, name, op, prescale, postscale, process_set, grouped=grouped)]
    if kind == _core.ALLGATHER:
        return [_collectives.allgather(arrays, name, process_set, grouped=grouped)]
    if kind == _core.REDUCESCATTER:
        return [
            _collectives.reducescatter(arrays, name, op, prescale, postscale, process_set, grouped=grouped)
        ]
    names = [f"{name}.{i}" if name is not None and grouped else name for i in range(len(arrays))]
    if kind == _core.BROADCAST:
        return [
            _collectives.broadcast(array, root, name, process_set)
            for array, name in zip(arrays, names, strict=True)
        ]
    return [
        _collectives.alltoall(array, splits, name, process_set)
        for array, name in zip(arrays, names, strict=True)
    ]


def finish(operation: Operation, handles: Sequence[int]) -> list[Any]:
    """The results of start(), as JAX arrays; for alltoall, the received splits are the last."""
    outputs = [table.synchronize(handle) for handle in handles]
    if operation.kind == _core.ALLTOALL:
        outputs = [*(output for output, _ in outputs), outputs[0][1]]
    elif isinstance(outputs[0], tuple):
        outputs = list(outputs[0])
    return [to_jax(output) for output in outputs]


def to_jax(array: Array) -> Any:
    """A JAX array of a numpy array that nobody else has; with its memory if it is large."""
    if array.nbytes < _WORTH_SHARING:
        return jnp.asarray(array)
    return jax.device_put(array)
