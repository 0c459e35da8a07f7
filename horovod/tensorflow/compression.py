"""Smaller elements on the wire, for TensorFlow's tensors."""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from horovod.common import compression as common
from horovod.common.compression import NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor(common.Compressor[Any], Protocol):
    """Turns a tensor into a smaller one and back."""


class _Cast:
    dtype: Any

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """The tensor in the smaller type, and its own type."""
        tensor = tf.convert_to_tensor(tensor)
        return (tf.cast(tensor, cls.dtype), tensor.dtype) if tensor.dtype.is_floating else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result in the type that the tensor had."""
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(_Cast):
    """Sends floating-point tensors as float16; others as they are."""

    dtype = tf.float16


class BF16Compressor(_Cast):
    """Sends floating-point tensors as bfloat16, which keeps float32's range; others as they are."""

    dtype = tf.bfloat16


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
