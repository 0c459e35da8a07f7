"""Numpy arrays as tensors for the collectives. Also what object broadcasts travel in."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from horovod import _core
from horovod.common.collectives import Collectives
from horovod.common.session import for_collective

Array = NDArray[Any]

_BFLOAT16 = _core.DTYPES.index("bfloat16")
_codes: dict[np.dtype[Any], int] = {
    np.dtype(name): code for code, name in enumerate(_core.DTYPES) if code != _BFLOAT16
}


def dtype_code(dtype: np.dtype[Any]) -> int:
    """The engine's code; ValueError naming what is supported."""
    code = _codes.get(dtype)
    if code is None:
        # bfloat16 comes from ml_dtypes or a framework: known by its name, so that none of them is
        # needed.
        if dtype.name != "bfloat16" or dtype.itemsize != 2 or not dtype.isnative:
            raise ValueError(
                f"dtype {dtype!r} is not supported; use one of {', '.join(_core.DTYPES)} in native byte order"
            )
        code = _codes[dtype] = _BFLOAT16
    return code


def _address(array: Array) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]  # it is a buffer
    except (TypeError, ValueError):  # read-only, empty, or bfloat16: four times slower, but always works
        return array.ctypes.data


def consecutive(sizes: Iterable[int], most: int = 64 << 20) -> list[range]:
    """The numbers of those that come one after another and have at most so many bytes together.

    One that has more is alone. Whoever broadcasts one part after another needs no memory for a
    second model.
    """
    parts: list[range] = []
    held = 0
    for i, size in enumerate(sizes):
        if not parts or held + size > most:
            parts.append(range(i, i))
            held = 0
        parts[-1] = range(parts[-1].start, i + 1)
        held += size
    return parts


def shared_memory(size: int) -> _core.Memory | None:
    """So many bytes that the ranks of this host reach of each other; None if there are none."""
    return for_collective().engine.allocate_shared(size)


def sizes_of(shape: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Numpy's integers, too, whose product might wrap around."""
    return tuple(operator.index(size) for size in (shape if isinstance(shape, Iterable) else (shape,)))


def empty(shape: SupportsIndex | Iterable[SupportsIndex], dtype: DTypeLike = np.float32) -> Array:
    """An array with any content, in memory that the ranks of a host reach of each other.

    hvd.allreduce_() and its relatives, which work in place, copy nothing of such arrays and views
    of them, and so are quicker, if they have 64 KiB or more, all ranks are on one host, and each
    has its own there. In every other case they are arrays like others: also for averages of
    integers and for Adasum, and in a group in which another array lies elsewhere. Where a limit is
    set on the addresses of a process (RLIMIT_AS), they are ordinary memory. A process forked from
    this one shares them: what either writes, the other sees, and when this one lets go of them,
    the other finds something else there.
    """
    kind = np.dtype(dtype)
    sizes = sizes_of(shape)
    memory = shared_memory(math.prod(sizes) * kind.itemsize)
    if memory is None:
        return np.empty(sizes, kind)
    return np.asarray(memory).view(kind).reshape(sizes)


class ArrayAdapter:
    """api.Adapter of numpy arrays."""

    def readable(self, tensor: ArrayLike) -> Array:
        return np.asarray(tensor)

    def writable(self, tensor: Array) -> Array:
        if not isinstance(tensor, np.ndarray) or not tensor.flags.writeable:
            raise ValueError(
                f"an operation in place needs a writable numpy array, got {type(tensor).__name__}"
            )
        return tensor

    def staged(self, tensor: Array) -> Array:
        # Not ascontiguousarray(): it would turn a 0-dim array into a 1-dim one.
        return tensor if tensor.flags.c_contiguous else tensor.copy(order="C")

    def empty_like(self, tensor: Array) -> Array:
        return np.empty(tensor.shape, tensor.dtype)

    def describe(self, tensor: Array) -> tuple[int, Sequence[int], int]:
        return _address(tensor), tensor.shape, dtype_code(tensor.dtype)

    def assign(self, target: Array, source: Array) -> None:
        target[...] = source

    def unstaged(self, staged: Array, tensor: Array) -> Array:
        return staged

    def wrap(self, memory: _core.Memory | None, shape: tuple[int, ...], like: Array) -> Array:
        if memory is None:
            return np.empty(shape, like.dtype)
        return np.asarray(memory).view(like.dtype).reshape(shape)

    def splits_to_list(self, splits: Any) -> list[int]:
        array = np.asarray(splits)
        if not isinstance(splits, np.ndarray) and (array.dtype.kind in "iu" or array.size == 0):
            array = array.astype(np.int32)
        if array.ndim != 1 or array.dtype != np.int32:
            raise ValueError(
                f"splits must be 1-D and int32, got {array.ndim}-D {array.dtype}; use splits.astype('int32')"
            )
        result: list[int] = array.tolist()
        return result

    def splits_from_list(self, splits: list[int]) -> Array:
        return np.array(splits, np.int32)


collectives: Collectives[Array] = Collectives(ArrayAdapter())
