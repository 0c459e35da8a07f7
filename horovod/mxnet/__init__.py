"""Collectives on MXNet's arrays: `import horovod.mxnet as hvd`, then hvd.init() and the functions below."""

from horovod.common import basics as _common
from horovod.common.basics import *  # noqa: F403
from horovod.common.objects import allgather_object, broadcast_object
from horovod.mxnet import ops as _ops
from horovod.mxnet.compression import Compression
from horovod.mxnet.functions import broadcast_parameters
from horovod.mxnet.ops import *  # noqa: F403
from horovod.mxnet.optimizer import DistributedOptimizer, DistributedTrainer

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "allgather_object",
    "broadcast_object",
    "broadcast_parameters",
]
__all__ += _common.__all__
__all__ += _ops.__all__
