"""Smaller elements on the wire. Users may pass any class with these two static methods."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from horovod.common.compression import CastCompressor, Compressors


class _Cast(CastCompressor[Any]):
    @staticmethod
    def is_floating(tensor: Any) -> bool:
        """Whether it has floating-point numbers."""
        return bool(jnp.issubdtype(tensor.dtype, jnp.floating))


class FP16Compressor(_Cast, dtype=jnp.float16):
    """Sends floating-point arrays as float16; others as they are."""


class BF16Compressor(_Cast, dtype=jnp.bfloat16):
    """Sends floating-point arrays as bfloat16, which keeps float32's range; others as they are."""


Compression: Compressors[Any] = Compressors(FP16Compressor, BF16Compressor)
