"""Horovod for Keras: `import horovod.keras as hvd`, then hvd.init(). On the TensorFlow or torch backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras as _keras

from horovod import _absent
from horovod._keras.api import Api as _Api
from horovod.common.basics import (
    Adasum,
    Average,
    Sum,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.keras import callbacks

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
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Sum",
    "add_process_set",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


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

    As horovod.tensorflow.keras.DistributedOptimizer(), whose other arguments may be given by name; only the
    order of the last ones differs.
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


if not TYPE_CHECKING:  # type checkers find a misspelt name by themselves

    def __getattr__(name: str) -> Any:
        raise _absent.missing_attribute(__name__, name)
