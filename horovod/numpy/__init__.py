"""Collectives on numpy arrays: `import horovod.numpy as
hvd`, then hvd.init() and the functions below."""

import importlib
from typing import TYPE_CHECKING, Any

from horovod.common import basics as _common
from horovod.common.basics import *  # noqa: F403
from horovod.common.objects import allgather_object, broadcast_object
from horovod.numpy import ops as _ops
from horovod.numpy.compression import Compression
from horovod.numpy.functions import broadcast_parameters
from horovod.numpy.ops import *  # noqa: F403

__all__ = [
    "Compression",
    "allgather_object",
    "broadcast_object",
    "broadcast_parameters",
    "elastic",
]
__all__ += _common.__all__
__all__ += _ops.__all__

if TYPE_CHECKING:
    from horovod.numpy import elastic
else:  # type checkers find a misspelt name by themselves

    def __getattr__(name: str) -> Any:
        if name == "elastic":  # few programs need it
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
