"""The collectives and basics under the name that existing programs import.

Nothing here needs MPI.
"""

from horovod.common import basics as _common
from horovod.common.basics import *  # noqa: F403
from horovod.common.basics import _basics
from horovod.common.collectives import reduce_op as handle_average_backwards_compatibility
from horovod.common.util import gpu_available, num_rank_is_power_2
from horovod.torch import ops as _ops
from horovod.torch.compression import Compression
from horovod.torch.ops import *  # noqa: F403
from horovod.torch.sparse import sparse_allreduce_async

__all__ = [
    "Compression",
    "_basics",
    "gpu_available",
    "handle_average_backwards_compatibility",
    "num_rank_is_power_2",
    "sparse_allreduce_async",
]
__all__ += _common.__all__
__all__ += _ops.__all__
