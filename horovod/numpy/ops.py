"""The collectives on numpy arrays; horovod.common.api says what they do.

Wherever an array is read, anything that numpy.asarray() takes will do.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from horovod.common.api import Api
from horovod.common.arrays import Array, ArrayAdapter, empty
from horovod.common.collectives import barrier, join
from horovod.common.handles import table

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
    "empty",
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

_api: Api[Array, ArrayLike] = Api(ArrayAdapter())

poll = table.poll
synchronize = table.synchronize
allgather = _api.allgather
allgather_async = _api.allgather_async
allreduce = _api.allreduce
allreduce_ = _api.allreduce_
allreduce_async = _api.allreduce_async
allreduce_async_ = _api.allreduce_async_
alltoall = _api.alltoall
alltoall_async = _api.alltoall_async
broadcast = _api.broadcast
broadcast_ = _api.broadcast_
broadcast_async = _api.broadcast_async
broadcast_async_ = _api.broadcast_async_
grouped_allgather = _api.grouped_allgather
grouped_allgather_async = _api.grouped_allgather_async
grouped_allreduce = _api.grouped_allreduce
grouped_allreduce_ = _api.grouped_allreduce_
grouped_allreduce_async = _api.grouped_allreduce_async
grouped_allreduce_async_ = _api.grouped_allreduce_async_
grouped_reducescatter = _api.grouped_reducescatter
grouped_reducescatter_async = _api.grouped_reducescatter_async
reducescatter = _api.reducescatter
reducescatter_async = _api.reducescatter_async
