"""Horovod for TensorFlow: `import horovod.tensorflow as hvd`, then hvd.init().

Collectives work eagerly, in a tf.function and in TF1 graphs. To train on several processes, wrap
the tape (hvd.DistributedGradientTape) or the optimizer (hvd.DistributedOptimizer), and give all
ranks the same start with hvd.broadcast_variables() or hvd.BroadcastGlobalVariablesHook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from horovod import _absent
from horovod.common import basics as _common
from horovod.common.basics import *  # noqa: F403
from horovod.tensorflow import op_gradients as _op_gradients  # noqa: F401  # registers them
from horovod.tensorflow import place_ops as _place_ops
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.mpi_ops import (
    allgather,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    check_num_rank_power_of_2,
    grouped_allgather,
    handle_average_backwards_compatibility,
    join,
)
from horovod.tensorflow.optimizer import DistributedOptimizer
from horovod.tensorflow.place_ops import *  # noqa: F403
from horovod.tensorflow.reductions import (
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from horovod.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from horovod.tensorflow.util import _executing_eagerly

if TYPE_CHECKING:
    from horovod.tensorflow import elastic
    from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "LocalGradientAggregationHelper",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",
    "_executing_eagerly",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "check_num_rank_power_of_2",
    "elastic",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "join",
    "reducescatter",
]
__all__ += _common.__all__
__all__ += _place_ops.__all__

_absent.import_later(
    __name__,
    "elastic",  # few programs need it
    SyncBatchNormalization="horovod.tensorflow.sync_batch_norm",  # Keras takes seconds to import
)
