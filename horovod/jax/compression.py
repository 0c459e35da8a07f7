"""Smaller elements on the wire. Users may pass any class with these two static methods."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from horovod.common.compression import NoneCompressor


class _Cast:
    dtype: Any

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """The array to send, and what decompress() needs."""
        if not jnp.issubdtype(tensor.dtype, jnp.floating):
            return tensor, None
        return tensor.astype(cls.dtype), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result in its original form."""
        return tensor if ctx is None else tensor.astype(ctx)


class FP16Compressor(_Cast):
    """Sends floating-point arrays as float16; others as they are."""

    dtype = jnp.float16


class BF16Compressor(_Cast):
    """Sends floating-point arrays as bfloat16, which keeps float32's range; others as they are."""

    dtype = jnp.bfloat16


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
