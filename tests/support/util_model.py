"""What numpy computes in the order that the engine promises: the ranks of each host, then the hosts."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from functools import cache, reduce
from math import isqrt
from typing import Any

import ml_dtypes
import numpy as np

import horovod.numpy as hvd

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATING = [np.dtype(name) for name in ("float16", "float32", "float64")] + [BFLOAT16]
INTEGER = [np.dtype(name) for name in ("uint8", "int8", "uint16", "int16", "int32", "int64")]
COMPLEX = [np.dtype(name) for name in ("complex64", "complex128")]
NUMBERS = INTEGER + FLOATING + COMPLEX
ALL = [*NUMBERS, np.dtype(bool)]


def dtype_of(name: str) -> np.dtype[Any]:
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


@cache
def groups() -> list[list[int]]:
    """The ranks that are combined first: those of each host, or as HOROVOD_TOPOLOGY says."""
    size = hvd.size()
    if os.environ.get("HOROVOD_TRANSPORT", "auto") != "auto" or hvd.mpi_enabled():
        return [list(range(size))]
    if "HOROVOD_TOPOLOGY" in os.environ:
        counts = list(map(int, os.environ["HOROVOD_TOPOLOGY"].split(",")))
        names = [str(group) for group, count in enumerate(counts) for _ in range(count)]
    else:
        names = hvd.allgather_object(os.environ.get("HOROVOD_HOSTNAME", ""), name="hosts of all ranks")
    return [[rank for rank in range(size) if names[rank] == name] for name in dict.fromkeys(names)]


def combined(
    op: int,
    arrays: Sequence[Any],
    ranks: Sequence[int] | None = None,
    factor: float = 1.0,
    members: Sequence[int] | None = None,
) -> Any:
    """The reduction of the arrays of `ranks`; those of `members` (default: the same) that are missing joined.

    Each host's result is rounded to the dtype.
    """
    ranks = range(hvd.size()) if ranks is None else ranks
    members = ranks if members is None else members
    if op == hvd.Average and arrays[0].dtype.kind == "b" and len(ranks) < len(members):
        return np.zeros_like(arrays[0])  # who has joined has nothing that is true
    hosts = [host for host in ([rank for rank in each if rank in members] for each in groups()) if host]
    if arrays[0].dtype.kind in "biu":
        return in_order(op, arrays, len(members), factor)
    if len(hosts) == 1 and not _shares_memory():
        hosts = [[rank] for rank in members]
    elif len(hosts) == 1:
        return in_order(op, arrays, len(members), factor)
    own = dict(zip(ranks, arrays, strict=True))
    partial = hvd.Sum if op == hvd.Average else op
    # What there is of each host, and of each row of hosts if there are many
    present = [[own[rank] for rank in host if rank in own] for host in hosts]
    results = [[in_order(partial, host)] if host else [] for host in present]
    if len(hosts) > MOST_DIRECT:
        rows = [list(itertools.chain(*results[row])) for row in rows_of_hosts(len(hosts))]
        results = [[in_order(partial, row)] if row else [] for row in rows]
    return in_order(op, list(itertools.chain(*results)), len(members), factor)


MOST_DIRECT = 16


def rows_of_hosts(count: int) -> list[slice]:
    """How more than MOST_DIRECT hosts are combined: neighbours first. As rows_of() of the core."""
    number = next(
        (rows for rows in range(isqrt(count), 0, -1) if count % rows == 0 and 2 * rows * rows >= count),
        isqrt(count),
    )
    ends = list(itertools.accumulate((count + row) // number for row in range(number)))
    return [slice(*bounds) for bounds in zip([0, *ends], ends, strict=False)]


def _shares_memory() -> bool:
    return os.environ.get("HOROVOD_TRANSPORT", "auto") in ("auto", "shm") and not hvd.mpi_enabled()


def in_order(op: int, arrays: Sequence[Any], divisor: int = 1, factor: float = 1.0) -> Any:
    """The reduction one after the other with the precision that the engine promises."""
    dtype = arrays[0].dtype
    if dtype.kind == "b":
        return reduce({hvd.Sum: np.logical_or, hvd.Max: np.logical_or}.get(op, np.logical_and), arrays)
    if op == hvd.Average and dtype.kind in "iu" and factor == 1.0:
        return exact_average(arrays, divisor)
    small = dtype in (np.dtype("float16"), BFLOAT16)
    total = np.array(arrays[0], np.float32 if small else dtype)  # a copy, and no scalar
    step = {hvd.Min: np.minimum, hvd.Max: np.maximum, hvd.Product: np.multiply}.get(op, np.add)
    for array in arrays[1:]:
        step(total, array.astype(np.float32) if small else array, out=total)
    return scaled(total, factor / divisor if op == hvd.Average else factor).astype(dtype, copy=False)


def scaled(array: Any, factor: float) -> Any:
    """As prescale and postscale do: floats in their precision, 16-bit ones in float32, integers truncate."""
    dtype = array.dtype
    if factor == 1.0 or dtype.kind == "b":
        return array
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        product = np.trunc(array.astype(np.float64) * factor)
        return np.asarray(np.clip(product, info.min, info.max)).astype(dtype)
    if dtype in (np.dtype("float16"), BFLOAT16):
        return np.asarray(array.astype(np.float32) * np.float32(factor)).astype(dtype)
    return np.asarray(array * array.real.dtype.type(factor))


def exact_average(arrays: Sequence[Any], divisor: int) -> Any:
    """Of integers, truncated toward zero. Halves of 32 bits keep the sum of 64-bit ones exact."""
    wide = [array.astype(np.int64) for array in arrays]
    low = sum((array & 0xFFFFFFFF for array in wide), np.zeros_like(wide[0]))
    high = sum((array >> 32 for array in wide), low >> 32)
    low &= 0xFFFFFFFF
    quotient, rest = np.divmod(high, divisor)
    rest = (rest << 32) | low
    floor = (quotient << 32) + rest // divisor
    return np.asarray(floor + ((high < 0) & (rest % divisor != 0))).astype(arrays[0].dtype)


def adasum(arrays: Sequence[Any]) -> Any:
    """In double; neighbours first."""
    results = [array.astype(np.float64).ravel() for array in arrays]
    while len(results) > 1:
        results = [_adasum_of_two(*results[i : i + 2]) for i in range(0, len(results), 2)]
    return results[0].reshape(arrays[0].shape)


def _adasum_of_two(a: Any, b: Any) -> Any:
    dot, aa, bb = a @ b, a @ a, b @ b
    return (1 - dot / (2 * aa)) * a + (1 - dot / (2 * bb)) * b


def rows_of(count: int, members: int, index: int) -> slice:
    """Which of `count` rows a member gets of a reducescatter."""
    first = index * (count // members) + min(index, count % members)
    return slice(first, first + count // members + (index < count % members))
