"""torchmetrics over the ranks: they know torch.distributed only, but let themselves be told another way."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

import horovod.torch as hvd


def several_ranks() -> bool:
    """What `distributed_available_fn` of a metric asks."""
    return hvd.is_initialized() and hvd.size() > 1


def gather_all(tensor: Tensor, group: Any = None) -> list[Tensor]:
    """Every rank's tensor, in rank order; shapes may differ. For `dist_sync_fn` of a metric.

    `group` is there because torchmetrics passes it; it has no meaning here.
    """
    shapes: list[tuple[torch.Size, torch.dtype]] = hvd.allgather_object((tensor.shape, tensor.dtype))
    if tensor.numel() == 0:  # of a rank without data, whose metric could not know the type
        tensor = tensor.to(next((dtype for shape, dtype in shapes if shape.numel()), tensor.dtype))
    with torch.no_grad():
        gathered = hvd.allgather(tensor.reshape(-1))
    parts: tuple[Tensor, ...] = torch.split(gathered, [shape.numel() for shape, _ in shapes])
    return [part.view(shape) for part, (shape, _) in zip(parts, shapes, strict=True)]


def ranks_share_metrics(module: Module) -> None:
    """Lets every torchmetrics.Metric within `module` that has no `dist_sync_fn` compute over all ranks.

    HorovodStrategy does this for the LightningModule; call it for metrics that are kept elsewhere.
    """
    torchmetrics = sys.modules.get("torchmetrics")
    if torchmetrics is None:
        return
    for metric in module.modules():
        if isinstance(metric, torchmetrics.Metric) and metric.dist_sync_fn is None:
            metric.dist_sync_fn = gather_all
            metric.distributed_available_fn = several_ranks
