"""Horovod for tf.keras: `import horovod.tensorflow.keras as hvd`, then hvd.init().

For Keras 3 or, with TF_USE_LEGACY_KERAS=1 and in TensorFlow up to 2.15, legacy Keras.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as _tf

from horovod import _absent
from horovod._keras.api import Api as _Api
from horovod.common import basics as _common
from horovod.common.basics import *  # noqa: F403
from horovod.tensorflow.keras import callbacks

if TYPE_CHECKING:
    from horovod.tensorflow.keras import elastic

_api = _Api(_tf.keras)

Compression = _api.Compression
DistributedOptimizer = _api.DistributedOptimizer
PartialDistributedOptimizer = _api.PartialDistributedOptimizer
allgather = _api.allgather
allreduce = _api.allreduce
broadcast = _api.broadcast
broadcast_global_variables = _api.broadcast_global_variables
load_model = _api.load_model
reducescatter = _api.reducescatter

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
]
__all__ += _common.__all__

_absent.import_later(__name__, "elastic")  # few programs need it
