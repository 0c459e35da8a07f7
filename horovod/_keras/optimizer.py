"""hvd.DistributedOptimizer() for every Keras."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from horovod._keras import flavours
from horovod._keras.classes import hook_into
from horovod._keras.keras3_hook import Keras3Hook
from horovod._keras.legacy_hook import LegacyHook, is_legacy_optimizer
from horovod.common import distributed_options
from horovod.common.basics import Average, Sum
from horovod.common.distributed_options import DistributedOptions, Groups

OPS = (Average, Sum)


def distribute(optimizer: Any, options: DistributedOptions) -> Any:
    """The same optimizer, with its state, distributed.

    If it was before, the new options replace the old.
    """
    options = replace(options, ops=OPS)  # ValueError if it has another
    if flavours.is_keras3_optimizer(optimizer):
        hook_into(optimizer, Keras3Hook, options)
    elif is_legacy_optimizer(optimizer):
        hook_into(optimizer, LegacyHook, options)
    else:
        raise TypeError(
            f"hvd.DistributedOptimizer() of Keras takes a Keras optimizer, got {type(optimizer).__name__}; "
            "for those of tf.compat.v1.train use horovod.tensorflow.DistributedOptimizer()"
        )
    return optimizer


def checked_groups(keras: Any, groups: Any, num_groups: int) -> Groups:
    """See distributed_options."""
    if flavours.backend_of(keras) != flavours.TENSORFLOW:
        return distributed_options.checked_groups(groups, num_groups, keras.Variable)
    from horovod.tensorflow import gradient_reduction  # TensorFlow need not be there for others

    return gradient_reduction.checked_groups(groups, num_groups)
