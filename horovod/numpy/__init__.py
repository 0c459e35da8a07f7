"""Collectives on numpy arrays: `import horovod.numpy as
hvd`, then hvd.init() and the functions below."""

from typing import TYPE_CHECKING

from horovod import _absent
from horovod.common import basics as _common
from horovod.common.basics import *  # noqa: F403
from horovod.common.objects import allgather_object, broadcast_object
from horovod.numpy import ops as _ops
from horovod.numpy.compression import Compression
from horovod.numpy.functions import broadcast_parameters
from horovod.numpy.ops import *  # noqa: F403

if TYPE_CHECKING:
    from horovod.numpy import elastic

__all__ = [
    "Compression",
    "allgather_object",
    "broadcast_object",
    "broadcast_parameters",
    "elastic",
]
__all__ += _common.__all__
__all__ += _ops.__all__

_absent.import_later(__name__, "elastic")  # few programs need it
