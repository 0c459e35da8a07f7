"""Helpers on top of the collectives: the same
parameters, optimizer state and objects on all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from horovod.common.objects import allgather_object, broadcast_object
from horovod.torch.ops import broadcast_async_, synchronize
from horovod.torch.state import broadcast_optimizer_state

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]


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
    handles = [broadcast_async_(tensor, root_rank, name) for name, tensor in named]
    for handle in handles:
        synchronize(handle)


def _named(params: Any) -> list[tuple[str | None, Tensor]]:
    if isinstance(params, Mapping):
        return sorted(params.items())
    if isinstance(params, Tensor | str | bytes) or not isinstance(params, Iterable):
        raise ValueError(
            f"params must be a dict or an iterable of tensors or (name, tensor), got {type(params).__name__}"
        )
    return [entry if isinstance(entry, tuple) else (None, entry) for entry in params]
