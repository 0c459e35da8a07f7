"""Smaller elements on the wire: what the compressors of all frameworks have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

Tensor = TypeVar("Tensor")


class Compressor(Protocol[Tensor]):
    """Turns a tensor into a smaller one and back.

    Users may pass any class with these two static methods as `compression`.
    """

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """The tensor to send, and what decompress() needs."""

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """The result in its original form."""


class NoneCompressor:
    """Sends the tensor as it is."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """The tensor itself."""
        return tensor


class CastCompressor(Generic[Tensor]):
    """Sends floating-point tensors in a smaller type, the class's `dtype`; others as they are."""

    dtype: Any

    def __init_subclass__(cls, dtype: Any = None) -> None:
        cls.dtype = dtype

    @classmethod
    def compress(cls, tensor: Tensor) -> tuple[Tensor, Any]:
        """The tensor in the smaller type, and its own type."""
        if not cls.is_floating(tensor):
            return tensor, None
        return cls.cast(tensor, cls.dtype), tensor.dtype  # type: ignore[attr-defined]  # all tensors have one

    @classmethod
    def decompress(cls, tensor: Tensor, ctx: Any) -> Tensor:
        """The result in the type that the tensor had."""
        return tensor if ctx is None else cls.cast(tensor, ctx)

    @staticmethod
    def cast(tensor: Tensor, dtype: Any) -> Tensor:
        """The tensor in another type, for frameworks that have no other way."""
        return tensor.astype(dtype)  # type: ignore[attr-defined, no-any-return]

    @staticmethod
    def is_floating(tensor: Tensor) -> bool:
        """Whether the elements are floating-point numbers, as the framework sees it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Compressors(Generic[Tensor]):
    """The compressors that come with Horovod."""

    fp16: type[Compressor[Tensor]]
    bf16: type[Compressor[Tensor]]
    none: type[NoneCompressor] = NoneCompressor
