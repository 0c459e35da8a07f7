"""MXNet's arrays as tensors for the collectives: the engine works on their memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod import _core
from horovod.common.arrays import ArrayAdapter, dtype_code
from horovod.mxnet.framework import mx

NDArray = Any  # mx.nd.NDArray or mx.np.ndarray


def _maker(like: NDArray) -> Any:
    """What makes arrays of the same kind."""
    return mx.np if isinstance(like, mx.np.ndarray) else mx.nd


class NDArrayAdapter:
    """Adapter of MXNet's dense arrays on the CPU. They are contiguous: no copy is ever staged."""

    def readable(self, tensor: Any) -> NDArray:
        if not isinstance(tensor, mx.nd.NDArray):
            raise ValueError(f"needs an array of MXNet, got {type(tensor).__name__}")
        if tensor.context.device_type == "gpu":
            raise ValueError(f"arrays must be on the CPU, got one on {tensor.context}; use as_in_context()")
        if tensor.stype != "default":
            raise ValueError(f"arrays must be dense, got {tensor.stype}; use tostype('default')")
        return tensor

    def writable(self, tensor: NDArray) -> NDArray:
        return self.readable(tensor)

    def staged(self, tensor: NDArray) -> NDArray:
        # MXNet works in the background: until here what has been asked for may still read or write it. Our
        # own access must not be a task of MXNet's engine, which has few threads: ranks would wait for each
        # other if they started operations in different orders.
        mx.base.check_call(mx.base._LIB.MXNDArrayWaitToWrite(tensor.handle))
        return tensor

    def empty_like(self, tensor: NDArray) -> NDArray:
        return _maker(tensor).empty(tensor.shape, dtype=tensor.dtype)

    def describe(self, tensor: NDArray) -> tuple[int, Sequence[int], int]:
        address = ctypes.c_void_p()
        mx.base.check_call(mx.base._LIB.MXNDArrayGetData(tensor.handle, ctypes.byref(address)))
        return address.value or 0, tensor.shape, dtype_code(np.dtype(tensor.dtype))

    def assign(self, target: NDArray, source: NDArray) -> None:
        target[:] = source

    def unstaged(self, staged: NDArray, tensor: NDArray) -> NDArray:
        return staged

    def wrap(self, memory: _core.Memory | None, shape: tuple[int, ...], like: NDArray) -> NDArray:
        dtype = np.dtype(like.dtype)
        if memory is None:
            return _maker(like).empty(shape, dtype=dtype)
        return _maker(like).array(np.asarray(memory).view(dtype).reshape(shape), dtype=dtype)

    def splits_to_list(self, splits: Any) -> list[int]:
        return ArrayAdapter().splits_to_list(
            splits.asnumpy() if isinstance(splits, mx.nd.NDArray) else splits
        )

    def splits_from_list(self, splits: list[int]) -> NDArray:
        return mx.nd.array(splits, dtype="int32")
