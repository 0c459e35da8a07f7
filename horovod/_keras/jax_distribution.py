"""The gradients of an optimizer of Keras 3 on its JAX backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import horovod.jax as hvd
from horovod._keras.distribution import Apply
from horovod._keras.grouped_distribution import GroupedDistribution
from horovod.common.distributed_options import DistributedOptions


class JaxDistribution(GroupedDistribution):
    """A distribution.Distribution for JAX arrays, traced or not. There is no tape to mark them."""

    hvd = hvd

    def __init__(self, options: DistributedOptions, name: str) -> None:
        if options.backward_passes_per_step != 1:
            raise ValueError(
                "backward_passes_per_step > 1 does not work on JAX, where optimizers have no state beside "
                "their variables: give gradient_accumulation_steps to the optimizer"
            )
        super().__init__(options, name)

    def accumulate(
        self, gradients: Sequence[Any], variables: Sequence[Any], apply: Apply, skip: Callable[[], Any]
    ) -> None:
        """See Distribution. Never needed here."""
        raise NotImplementedError("Keras accumulates the gradients itself")
