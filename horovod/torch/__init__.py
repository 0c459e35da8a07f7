"""Collectives on torch tensors: `import horovod.torch as
hvd`, then hvd.init() and the functions below."""

from typing import TYPE_CHECKING

from horovod import _absent
from horovod.common import basics as _common
from horovod.common.basics import *  # noqa: F403
from horovod.torch import mpi_ops
from horovod.torch import ops as _ops
from horovod.torch.compression import Compression
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
    empty,
)
from horovod.torch.ops import *  # noqa: F403
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sparse import sparse_allreduce_async
from horovod.torch.sync_batch_norm import SyncBatchNorm

if TYPE_CHECKING:
    from horovod.torch import elastic

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    "empty",
    "mpi_ops",
    "sparse_allreduce_async",
]
__all__ += _common.__all__
__all__ += _ops.__all__

_absent.import_later(__name__, "elastic")  # few programs need it
