"""Smaller elements on the wire. Users may pass any class with the two static methods of `Compressor`."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Compressor(Protocol):
    """Turns a tensor into a smaller one and back."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """The tensor to send, and what decompress() needs."""

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """The result in its original form."""


class NoneCompressor(Compressor):
    """Sends the tensor as it is."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor


def _cast(tensor: Tensor, dtype: torch.dtype) -> tuple[Tensor, torch.dtype | None]:
    return (tensor.to(dtype), tensor.dtype) if tensor.is_floating_point() else (tensor, None)


def _cast_back(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor if dtype is None else tensor.to(dtype)


class FP16Compressor(Compressor):
    """Sends floating-point tensors as float16; others as they are."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return _cast(tensor, torch.float16)

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return _cast_back(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends floating-point tensors as bfloat16, which keeps float32's range; others as they are."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return _cast(tensor, torch.bfloat16)

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return _cast_back(tensor, ctx)


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
