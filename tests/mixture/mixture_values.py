"""What each rank contributes to an operation of the mixture, and what must come out."""

from __future__ import annotations

from typing import Any

import numpy as np
from mixture_plan import REDUCING, Operation
from util_model import ALL, BFLOAT16, adasum, combined, rows_of, scaled

import horovod.numpy as hvd

POOL_BYTES = 3 << 19
_MASK = (1 << 64) - 1


class Values:
    """Slices of pools of random numbers, one for each dtype: they cost nothing, and all ranks know all."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._pools = {dtype: self._make(dtype) for dtype in ALL}

    def _make(self, dtype: np.dtype[Any]) -> Any:
        random = np.random.default_rng([self._seed & 0xFFFFFFFF, ALL.index(dtype)])
        count = POOL_BYTES // dtype.itemsize
        if dtype.kind == "b":
            pool = random.integers(0, 2, count).astype(bool)
        elif dtype.kind in "iu":
            info = np.iinfo(dtype)
            pool = random.integers(info.min, info.max, count, dtype, endpoint=True)
        else:
            # Products of some must neither overflow nor vanish, and no sum may be a negative zero.
            parts = 2 if dtype.kind == "c" else 1
            numbers = random.uniform(0.5, 2.0, parts * count) * random.choice([-1.0, 1.0], parts * count)
            pool = numbers.view(np.complex128).astype(dtype) if parts == 2 else numbers.astype(dtype)
        pool.flags.writeable = False
        return pool

    def unharmed(self) -> bool:
        """Whether the engine has left the inputs as they were."""
        return all(pool.tobytes() == self._make(dtype).tobytes() for dtype, pool in self._pools.items())

    def get(self, operation: Operation, rank: int, index: int) -> Any:
        """A read-only array: what `rank` has as its tensor `index`."""
        dtype, shape = operation.dtypes[index], operation.shapes[index]
        if operation.rows:
            shape = (operation.rows[index][operation.set.members.index(rank)], *shape)
        count = int(np.prod(shape))
        mixed = (operation.number * 64 + rank) * 8 + index
        mixed = (mixed * 0x9E3779B97F4A7C15 + self._seed) & _MASK
        start = ((mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9 & _MASK) >> 20
        pool = self._pools[dtype]
        if 2 * count <= len(pool):
            start %= len(pool) - count + 1
            return pool[start : start + count].reshape(shape)
        start %= len(pool)
        return np.resize(np.concatenate((pool[start:], pool[:start])), count).reshape(shape)

    def expected(self, operation: Operation, rank: int) -> list[Any]:
        """The results of `rank`, in the order of the tensors; of an alltoall also the received splits."""
        if operation.kind == "alltoall":
            return self._alltoall(operation, rank)
        return [self._result(operation, rank, index) for index in range(len(operation.dtypes))]

    def _result(self, operation: Operation, rank: int, index: int) -> Any:
        members = operation.set.members
        if operation.kind == "broadcast":
            return self.get(operation, operation.root, index)
        arrays = [self.get(operation, member, index) for member in operation.present]
        if operation.kind not in REDUCING:
            return np.concatenate(arrays)
        if "reducescatter" in operation.kind:
            own = rows_of(operation.shapes[index][0], len(members), members.index(rank))
            arrays = [array[own] for array in arrays]
        arrays = [scaled(array, operation.prescale) for array in arrays]
        if operation.op == hvd.Adasum:
            return adasum(arrays).astype(operation.dtypes[index]) if arrays[0].size else arrays[0]
        return combined(operation.op, arrays, operation.present, operation.postscale, members)

    def _alltoall(self, operation: Operation, rank: int) -> list[Any]:
        members = operation.set.members
        own = members.index(rank)
        parts, received = [], []
        for i, member in enumerate(members):
            array = self.get(operation, member, 0)
            if operation.splits is None:
                splits = (len(array) // len(members),) * len(members)
            else:
                splits = operation.splits[i]
            first = sum(splits[:own])
            parts.append(array[first : first + splits[own]])
            received.append(splits[own])
        return [np.concatenate(parts), np.array(received, np.int32)]


def difference(actual: Any, expected: Any, exact: bool) -> str | None:
    """How a result differs from what it must be, bit by bit or (Adasum) nearly; None if it does not."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"got {actual.dtype} {actual.shape}, expected {expected.dtype} {expected.shape}"
    if not exact:
        if np.allclose(actual, expected, rtol=1e-4, atol=1e-5):
            return None
        bad = np.flatnonzero(~np.isclose(actual, expected, rtol=1e-4, atol=1e-5).ravel())
    else:
        bits = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}[actual.itemsize]
        left, right = (np.ascontiguousarray(each).ravel().view(bits) for each in (actual, expected))
        if np.array_equal(left, right):
            return None
        bad = np.flatnonzero(left != right)
    as_numbers = [each.ravel()[bad[:5]] for each in (actual, expected)]
    if actual.dtype == BFLOAT16:
        as_numbers = [each.astype(np.float32) for each in as_numbers]
    got, wanted = (each.tolist() for each in as_numbers)
    return (
        f"{len(bad)} of {actual.size} elements are wrong, from index {bad[0]} to {bad[-1]}; "
        f"at {bad[:5].tolist()}: got {got}, expected {wanted}"
    )
