"""Smaller elements on the wire. Users may pass any class with the two static methods of `Compressor`."""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf


class Compressor(Protocol):
    """Turns a tensor into a smaller one and back."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and what decompress() needs."""

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result in its original form."""


class NoneCompressor:
    """Sends the tensor as it is."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


def _cast(tensor: Any, dtype: Any) -> tuple[Any, Any]:
    tensor = tf.convert_to_tensor(tensor)
    return (tf.cast(tensor, dtype), tensor.dtype) if tensor.dtype.is_floating else (tensor, None)


def _cast_back(tensor: Any, dtype: Any) -> Any:
    return tensor if dtype is None else tf.cast(tensor, dtype)


class FP16Compressor:
    """Sends floating-point tensors as float16; others as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _cast(tensor, tf.float16)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return _cast_back(tensor, ctx)


class BF16Compressor:
    """Sends floating-point tensors as bfloat16, which keeps float32's range."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _cast(tensor, tf.bfloat16)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return _cast_back(tensor, ctx)


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
