"""Smaller elements on the wire, for TensorFlow's tensors."""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from horovod.common import compression as common
from horovod.common.compression import CastCompressor, Compressors, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor(common.Compressor[Any], Protocol):
    """Turns a tensor into a smaller one and back."""


class _Cast(CastCompressor[Any]):
    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """The tensor in the smaller type, and its own type."""
        return super().compress(tf.convert_to_tensor(tensor))

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """The tensor in another type."""
        return tf.cast(tensor, dtype)

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """Whether it has floating-point numbers."""
        return bool(tensor.dtype.is_floating)


class FP16Compressor(_Cast, dtype=tf.float16):
    """Sends floating-point tensors as float16; others as they are."""


class BF16Compressor(_Cast, dtype=tf.bfloat16):
    """Sends floating-point tensors as bfloat16, which keeps float32's range; others as they are."""


Compression: Compressors[Any] = Compressors(FP16Compressor, BF16Compressor)
