"""Horovod for JAX: `import horovod.jax as hvd`, then hvd.init() and the functions below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horovod import _absent
from horovod.common import basics as _common
from horovod.common.basics import *  # noqa: F403
from horovod.common.objects import allgather_object, broadcast_object
from horovod.common.session import state as _state
from horovod.jax import compiled as _compiled
from horovod.jax import ops as _ops
from horovod.jax.compression import Compression
from horovod.jax.functions import broadcast_optimizer_state, broadcast_parameters
from horovod.jax.gradients import DistributedOptimizer, grad, value_and_grad
from horovod.jax.ops import *  # noqa: F403

if TYPE_CHECKING:
    from horovod.jax import elastic

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    "grad",
    "value_and_grad",
]
__all__ += _common.__all__
__all__ += _ops.__all__

if _state.session is not None:
    _compiled.forget_other_worlds()
_state.after_init.append(_compiled.forget_other_worlds)
# JAX's own function at exit, which waits for what is under way, comes after ours.
_state.before_shutdown.append(_compiled.wait_for_programs)

_absent.import_later(__name__, "elastic")  # few programs need it
