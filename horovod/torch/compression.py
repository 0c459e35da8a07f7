"""Smaller elements on the wire, for torch tensors."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from horovod.common import compression as common
from horovod.common.compression import CastCompressor, Compressors, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor(common.Compressor[Tensor], Protocol):
    """Turns a torch tensor into a smaller one and back."""


class _Cast(CastCompressor[Tensor]):
    @staticmethod
    def cast(tensor: Tensor, dtype: Any) -> Tensor:
        """The tensor in another type."""
        return tensor.to(dtype)

    @staticmethod
    def is_floating(tensor: Tensor) -> bool:
        """Whether it has floating-point numbers."""
        return tensor.is_floating_point()


class FP16Compressor(_Cast, dtype=torch.float16):
    """Sends floating-point tensors as float16; others as they are."""


class BF16Compressor(_Cast, dtype=torch.bfloat16):
    """Sends floating-point tensors as bfloat16, which keeps float32's range; others as they are."""


Compression: Compressors[Tensor] = Compressors(FP16Compressor, BF16Compressor)
