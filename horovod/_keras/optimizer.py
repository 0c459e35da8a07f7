"""hvd.DistributedOptimizer() for every Keras."""

from __future__ import annotations

from typing import Any

from horovod._keras import flavours
from horovod._keras.classes import hook_into
from horovod._keras.keras3_hook import Keras3Hook
from horovod._keras.legacy_hook import LegacyHook, is_legacy_optimizer
from horovod._keras.options import Options, layers


def distribute(optimizer: Any, options: Options) -> Any:
    """The same optimizer, with its state, distributed. If it was before, the new options replace the old."""
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


def checked_groups(keras: Any, groups: Any, num_groups: int) -> Any:
    """`groups`, or what the deprecated `num_groups` stands for. ValueError if it makes no sense."""
    if flavours.backend_of(keras) == flavours.TENSORFLOW:
        from horovod.tensorflow.reduction import check_groups  # TensorFlow need not be there for others

        return check_groups(groups, num_groups)
    groups = groups if groups is not None else num_groups or None
    if isinstance(groups, int) and groups <= 0:
        raise ValueError(f"groups must be at least 1, got {groups}")
    return groups


def checked_layers(keras: Any, local_layers: Any) -> list[Any]:
    """`local_layers` as a list. ValueError if there is something else in it."""
    return layers(local_layers, keras.layers.Layer)
