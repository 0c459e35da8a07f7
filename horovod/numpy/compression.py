"""Smaller elements on the wire, for numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from horovod.common import compression as common
from horovod.common.arrays import Array
from horovod.common.compression import NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor(common.Compressor[Array], Protocol):
    """Turns an array into a smaller one and back."""


class _Cast:
    dtype: Callable[[], Any]

    @classmethod
    def compress(cls, tensor: Array) -> tuple[Array, Any]:
        """The array in the smaller type, and its own type."""
        # bfloat16 is not one of numpy's own floating types.
        if tensor.dtype.kind != "f" and tensor.dtype.name != "bfloat16":
            return tensor, None
        return tensor.astype(cls.dtype(), copy=False), tensor.dtype

    @staticmethod
    def decompress(tensor: Array, ctx: Any) -> Array:
        """The result in the type that the array had."""
        return tensor if ctx is None else tensor.astype(ctx)


class FP16Compressor(_Cast):
    """Sends floating-point arrays as float16; others as they are."""

    @staticmethod
    def dtype() -> Any:
        """The smaller type."""
        return np.float16


class BF16Compressor(_Cast):
    """Sends floating-point arrays as bfloat16, which keeps float32's range.

    Needs the package ml_dtypes.
    """

    @staticmethod
    def dtype() -> Any:
        """The smaller type, which is not one of numpy's."""
        try:
            import ml_dtypes
        except ImportError as error:
            raise ImportError(
                "Compression.bf16 on numpy arrays needs the package ml_dtypes: pip install ml_dtypes"
            ) from error
        return ml_dtypes.bfloat16


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
