"""Helpers on top of the collectives: the same
parameters, optimizer state and objects on all ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from horovod.common.arrays import shared_memory, sizes_of
from horovod.common.objects import allgather_object, broadcast_object
from horovod.torch._all_at_once import synchronize_all
from horovod.torch.ops import broadcast_async_
from horovod.torch.state import broadcast_optimizer_state

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "empty",
]


def empty(size: SupportsIndex | Iterable[SupportsIndex], dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor on the CPU with any content, in memory that the ranks of a host reach of each other.

    What horovod.numpy.empty() says of arrays holds for it.
    """
    sizes = sizes_of(size)
    memory = shared_memory(math.prod(sizes) * dtype.itemsize)
    if memory is None:
        return torch.empty(sizes, dtype=dtype, device="cpu")
    return torch.from_numpy(np.asarray(memory)).view(dtype).view(sizes)


def broadcast_parameters(
    params: Mapping[str, Tensor] | Iterable[Tensor | tuple[str, Tensor]], root_rank: int
) -> None:
    """Overwrites tensors with the root's, in place.

    `params`: a dict such as model.state_dict(), or an iterable of tensors or of (name, tensor) such
    as model.named_parameters(). The ranks' order does not matter where there are names.
    """
    named = _named(params)
    for name, tensor in named:
        # Before anything is sent, so that a mistake that all ranks make leaves nothing pending.
        if not isinstance(tensor, Tensor):
            raise ValueError(
                f"broadcast_parameters() needs tensors, got {type(tensor).__name__} for {name!r}; "
                "leave it out and use hvd.broadcast_object() for it"
            )
    synchronize_all(broadcast_async_(tensor, root_rank, name) for name, tensor in named)


def _named(params: Any) -> list[tuple[str | None, Tensor]]:
    if isinstance(params, Mapping):
        return sorted(params.items())
    if isinstance(params, Tensor | str | bytes) or not isinstance(params, Iterable):
        raise ValueError(
            f"params must be a dict or an iterable of tensors or (name, tensor), got {type(params).__name__}"
        )
    return [entry if isinstance(entry, tuple) else (None, entry) for entry in params]
