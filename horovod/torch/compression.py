"""Smaller elements on the wire, for torch tensors."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from horovod.common import compression as common
from horovod.common.compression import NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor(common.Compressor[Tensor], Protocol):
    """Turns a torch tensor into a smaller one and back."""


class _Cast:
    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: Tensor) -> tuple[Tensor, Any]:
        """The tensor in the smaller type, and its own type."""
        return (tensor.to(cls.dtype), tensor.dtype) if tensor.is_floating_point() else (tensor, None)

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """The result in the type that the tensor had."""
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_Cast):
    """Sends floating-point tensors as float16; others as they are."""

    dtype = torch.float16


class BF16Compressor(_Cast):
    """Sends floating-point tensors as bfloat16, which keeps float32's range; others as they are."""

    dtype = torch.bfloat16


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
