"""Smaller elements on the wire. Users may pass any class with the two static methods of `Compressor`."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Compressor(Protocol):
    """Turns an array into a smaller one and back."""

    @staticmethod
    def compress(tensor: Array) -> tuple[Array, Any]:
        """The array to send, and what decompress() needs."""

    @staticmethod
    def decompress(tensor: Array, ctx: Any) -> Array:
        """The result in its original form."""


class NoneCompressor:
    """Sends the array as it is."""

    @staticmethod
    def compress(tensor: Array) -> tuple[Array, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Array, ctx: Any) -> Array:
        return tensor


def _is_floating(dtype: np.dtype[Any]) -> bool:
    # bfloat16 is not one of numpy's own floating types.
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _cast_back(tensor: Array, dtype: Any) -> Array:
    return tensor if dtype is None else tensor.astype(dtype)


class FP16Compressor:
    """Sends floating-point arrays as float16; others as they are."""

    @staticmethod
    def compress(tensor: Array) -> tuple[Array, Any]:
        if not _is_floating(tensor.dtype):
            return tensor, None
        return tensor.astype(np.float16, copy=False), tensor.dtype

    @staticmethod
    def decompress(tensor: Array, ctx: Any) -> Array:
        return _cast_back(tensor, ctx)


class BF16Compressor:
    """Sends floating-point arrays as bfloat16, which keeps float32's range. Needs the package ml_dtypes."""

    @staticmethod
    def compress(tensor: Array) -> tuple[Array, Any]:
        if not _is_floating(tensor.dtype):
            return tensor, None
        try:
            import ml_dtypes
        except ImportError as error:
            raise ImportError(
                "Compression.bf16 on numpy arrays needs the package ml_dtypes: pip install ml_dtypes"
            ) from error
        return tensor.astype(ml_dtypes.bfloat16, copy=False), tensor.dtype

    @staticmethod
    def decompress(tensor: Array, ctx: Any) -> Array:
        return _cast_back(tensor, ctx)


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
