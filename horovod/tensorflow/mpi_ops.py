"""The collectives and basics under the name that existing programs import.

Nothing here needs MPI.
"""

from horovod.common import basics as _common
from horovod.common.basics import *  # noqa: F403
from horovod.common.basics import _basics
from horovod.common.collectives import reduce_op as handle_average_backwards_compatibility
from horovod.common.util import gpu_available, num_rank_is_power_2
from horovod.common.util import num_rank_is_power_2 as check_num_rank_power_of_2
from horovod.tensorflow import place_ops as _place_ops
from horovod.tensorflow.ops import (
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _normalize_name,
    _reducescatter,
    allgather,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_broadcast,
    join,
)
from horovod.tensorflow.place_ops import *  # noqa: F403

__all__ = [
    "_allreduce",
    "_basics",
    "_grouped_allreduce",
    "_grouped_reducescatter",
    "_normalize_name",
    "_reducescatter",
    "allgather",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "check_num_rank_power_of_2",
    "gpu_available",
    "grouped_allgather",
    "grouped_broadcast",
    "handle_average_backwards_compatibility",
    "join",
    "num_rank_is_power_2",
]
__all__ += _common.__all__
__all__ += _place_ops.__all__
