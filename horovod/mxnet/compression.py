"""Smaller elements on the wire, for MXNet's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod.common.compression import NoneCompressor


class FP16Compressor:
    """Sends floating-point arrays as float16; others as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The array in the smaller type, and its own type."""
        if np.dtype(tensor.dtype).kind != "f":
            return tensor, None
        return tensor.astype("float16", copy=False), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result in the type that the array had."""
        return tensor if ctx is None else tensor.astype(ctx, copy=False)


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
