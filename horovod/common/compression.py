"""Smaller elements on the wire: what the compressors of all frameworks have in common."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

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
