"""Horovod for Keras: `import horovod.keras as hvd`, then hvd.init(). On TensorFlow, torch or JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras as _keras

from horovod import _absent
from horovod._keras.api import Api as _Api
from horovod.common import basics as _common
from horovod.common.basics import *  # noqa: F403
from horovod.common.basics import Average
from horovod.keras import callbacks

if TYPE_CHECKING:
    from horovod.keras import elastic

_api = _Api(_keras)

Compression = _api.Compression
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


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
    **options: Any,
) -> Any:
    """The optimizer, which from now on works with the gradients of all ranks.

    As horovod.tensorflow.keras.DistributedOptimizer(), whose other arguments may be given by name;
    only the order of the last ones differs.
    """
    return _api.DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        num_groups=num_groups,
        groups=groups,
        **options,
    )


_absent.import_later(__name__, "elastic")  # few programs need it
