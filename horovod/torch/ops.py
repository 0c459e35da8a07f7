"""The collectives on torch tensors; horovod.common.api says what they do.

The blocking functions that return new tensors are differentiable.
"""

from __future__ import annotations

from torch import Tensor

from horovod.common.api import Api
from horovod.common.collectives import barrier, join
from horovod.common.handles import table
from horovod.torch.adapter import TorchAdapter
from horovod.torch.gradients import differentiable
from horovod.torch.uncompiled import uncompiled

__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]

_api: Api[Tensor, Tensor] = Api(TorchAdapter(), differentiable)

poll = uncompiled(table.poll)
synchronize = uncompiled(table.synchronize)
allgather = uncompiled(_api.allgather)
allgather_async = uncompiled(_api.allgather_async)
allreduce = uncompiled(_api.allreduce)
allreduce_ = uncompiled(_api.allreduce_)
allreduce_async = uncompiled(_api.allreduce_async)
allreduce_async_ = uncompiled(_api.allreduce_async_)
alltoall = uncompiled(_api.alltoall)
alltoall_async = uncompiled(_api.alltoall_async)
broadcast = uncompiled(_api.broadcast)
broadcast_ = uncompiled(_api.broadcast_)
broadcast_async = uncompiled(_api.broadcast_async)
broadcast_async_ = uncompiled(_api.broadcast_async_)
grouped_allgather = uncompiled(_api.grouped_allgather)
grouped_allgather_async = uncompiled(_api.grouped_allgather_async)
grouped_allreduce = uncompiled(_api.grouped_allreduce)
grouped_allreduce_ = uncompiled(_api.grouped_allreduce_)
grouped_allreduce_async = uncompiled(_api.grouped_allreduce_async)
grouped_allreduce_async_ = uncompiled(_api.grouped_allreduce_async_)
grouped_reducescatter = uncompiled(_api.grouped_reducescatter)
grouped_reducescatter_async = uncompiled(_api.grouped_reducescatter_async)
reducescatter = uncompiled(_api.reducescatter)
reducescatter_async = uncompiled(_api.reducescatter_async)
