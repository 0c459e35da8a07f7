"""Where the tensors of the mixture are: in ordinary memory, or where the other ranks reach them, alone or
side by side."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from mixture_plan import Operation

import horovod.numpy as hvd

_GUARD = 0xA5  # what is in memory around the tensors


class Memory:
    """Of one rank. The places are drawn: mostly all ranks have all of an operation where the others reach it,
    which is when they combine it there."""

    def __init__(self, seed: int, rank: int) -> None:
        self._seed = seed
        self._random = random.Random(f"{seed} memory {rank}")
        # By operation: memory as it must be when that has ended.
        self._kept: dict[int, list[tuple[Any, Any]]] = {}

    def place(self, operation: Operation, arrays: Sequence[Any]) -> list[Any]:
        """The operation's tensors: writable copies if it works in place, otherwise now and then copies."""
        draw = self._random
        if not operation.in_place:
            if draw.random() < 0.9:
                return list(arrays)
            copies = self._side_by_side(operation, arrays)
            self._keep(operation, zip(copies, arrays, strict=True))
            return copies
        all_shared = random.Random(f"{self._seed} place {operation.number}").random() < 0.7
        if all_shared and draw.random() < 0.7:
            return self._side_by_side(operation, arrays)
        return [_copy(array, all_shared or draw.random() < 0.7) for array in arrays]

    def unharmed(self, operation: Operation) -> bool:
        """Whether nothing but its results was written. The operation has ended: to be asked once."""
        kept = self._kept.pop(operation.number, [])
        return all(memory.tobytes() == content.tobytes() for memory, content in kept)

    def _keep(self, operation: Operation, kept: Any) -> None:
        self._kept.setdefault(operation.number, []).extend(kept)

    def _side_by_side(self, operation: Operation, arrays: Sequence[Any]) -> list[Any]:
        """Copies in one piece of memory that all ranks reach: each rank draws the gaps, often none, and the
        order."""
        draw = self._random
        order = draw.sample(range(len(arrays)), len(arrays)) if draw.random() < 0.3 else range(len(arrays))
        end = 0
        begins = [0] * len(arrays)
        gaps: list[tuple[int, int]] = []
        for index in order:
            itemsize = arrays[index].itemsize
            begin = -(-end // itemsize) * itemsize + itemsize * draw.choice((0, 0, 0, 1, 3, 5000))
            gaps.append((end, begin))
            begins[index], end = begin, begin + arrays[index].nbytes
        gaps.append((end, end + 64))
        block = hvd.empty(end + 64, np.uint8)
        for begin, stop in gaps:
            block[begin:stop] = _GUARD
            self._keep(operation, [(block[begin:stop], np.full(stop - begin, _GUARD, np.uint8))])
        copies = []
        for begin, array in zip(begins, arrays, strict=True):
            copy = block[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
            np.copyto(copy, array)
            copies.append(copy)
        return copies


def _copy(array: Any, shared: bool) -> Any:
    copy = (hvd.empty if shared else np.empty)(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy
