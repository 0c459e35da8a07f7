"""Everything that an adapter needs, for tensors that nobody has written one for: array.array of doubles."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from util_expect import raises

from horovod import _core
from horovod.common.api import Api
from horovod.common.basics import Sum, rank, size
from horovod.common.handles import table


class DoublesAdapter:
    """api.Adapter of one-dimensional arrays of doubles."""

    def readable(self, tensor: Iterable[float]) -> array[float]:
        return tensor if isinstance(tensor, array) else array("d", tensor)

    def writable(self, tensor: array[float]) -> array[float]:
        if not isinstance(tensor, array):
            raise ValueError(f"an array is needed, got {type(tensor).__name__}")
        return tensor

    def staged(self, tensor: array[float]) -> array[float]:
        return tensor

    def empty_like(self, tensor: array[float]) -> array[float]:
        return array("d", bytes(8 * len(tensor)))

    def describe(self, tensor: array[float]) -> tuple[int, Sequence[int], int]:
        return tensor.buffer_info()[0], (len(tensor),), _core.DTYPES.index("float64")

    def assign(self, target: array[float], source: array[float]) -> None:
        target[:] = source

    def unstaged(self, staged: array[float], tensor: array[float]) -> array[float]:
        return staged

    def wrap(self, memory: _core.Memory | None, shape: tuple[int, ...], like: array[float]) -> array[float]:
        return array("d", b"" if memory is None else np.asarray(memory).tobytes())

    def splits_to_list(self, splits: Any) -> list[int]:
        return list(splits)

    def splits_from_list(self, splits: list[int]) -> array[float]:
        return array("d", splits)


hvd: Api[array[float], Iterable[float]] = Api(DoublesAdapter())


def check_new_tensors() -> None:
    r, n = rank(), size()
    assert hvd.allreduce([r, 2.0], op=Sum) == array("d", [n * (n - 1) / 2, 2.0 * n])
    assert hvd.grouped_allreduce([[1.0], (3.0, 4.0)]) == [array("d", [1.0]), array("d", [3.0, 4.0])]
    assert hvd.allgather([float(r)] * (r + 1)) == array("d", [s for s in range(n) for _ in range(s + 1)])
    assert hvd.broadcast([float(r)], n - 1) == array("d", [n - 1.0])
    assert hvd.reducescatter([1.0] * n, op=Sum) == array("d", [n])
    assert hvd.alltoall([float(r)] * n) == array("d", range(n))
    output, received = hvd.alltoall([float(r)] * n, splits=[1] * n)
    assert output == array("d", range(n)) and list(received) == [1] * n


def check_in_place_and_handles() -> None:
    tensor = array("d", [rank() + 1.0])
    assert hvd.allreduce_(tensor, op=Sum) is tensor
    assert tensor[0] == size() * (size() + 1) / 2
    assert hvd.broadcast_(array("d", [float(rank())]), 0)[0] == 0.0
    handles = [hvd.allreduce_async([1.0], op=Sum), hvd.grouped_allgather_async([[2.0]])]
    assert table.synchronize(handles[0])[0] == size()
    assert table.synchronize(handles[1])[0] == array("d", [2.0] * size())
    with raises(ValueError, "an array is needed, got list"):
        hvd.allreduce_([1.0])  # type: ignore[arg-type]


class Halves:
    """A compressor."""

    @staticmethod
    def compress(tensor: array[float]) -> tuple[array[float], Any]:
        return array("d", [x / 2 for x in tensor]), 2

    @staticmethod
    def decompress(tensor: array[float], ctx: Any) -> array[float]:
        return array("d", [x * ctx for x in tensor])


def check_compression() -> None:
    assert hvd.allreduce([8.0], compression=Halves) == array("d", [8.0])
    assert hvd.grouped_reducescatter([[8.0] * size()], compression=Halves) == [array("d", [8.0])]
