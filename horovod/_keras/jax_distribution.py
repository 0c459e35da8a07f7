"""The gradients of an optimizer of Keras 3 on its JAX backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from horovod._keras.distribution import Apply
from horovod._keras.grouped_distribution import GroupedDistribution
from horovod.common.basics import Sum
from horovod.common.distributed_options import DistributedOptions
from horovod.common.steps import end_step
from horovod.jax.compiled import can_call, is_tracing
from horovod.jax.gradients import allreduce_leaves


class JaxDistribution(GroupedDistribution):
    """A distribution.Distribution for JAX arrays, traced or not. There is no tape to mark them."""

    def __init__(self, options: DistributedOptions, name: str) -> None:
        if options.backward_passes_per_step != 1:
            raise ValueError(
                "backward_passes_per_step > 1 does not work on JAX, where optimizers have no state beside "
                "their variables: give gradient_accumulation_steps to the optimizer"
            )
        super().__init__(options, name)

    def _allreduce(self, gradients: list[Any], name: str, ends_step: int) -> list[Any]:
        return allreduce_leaves(gradients, name, self.options, ends_step)

    def _end_step_alone(self, gradients: list[Any], kind: int) -> list[Any]:
        present = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if kind == 0 or not present:
            return gradients
        if not is_tracing([gradients[i] for i in present]):
            end_step(kind)
        elif self.options.process_set.included() and can_call():
            # Only a call can tell in a compiled program: the sum of the smallest gradient, with nobody's.
            i = min(present, key=lambda place: int(gradients[place].size))
            plain = DistributedOptions(op=Sum, process_set=self.options.process_set)
            gradients[i] = allreduce_leaves([gradients[i]], f"{self._name}_alone", plain, kind)[0]
        return gradients

    def accumulate(
        self, gradients: Sequence[Any], variables: Sequence[Any], apply: Apply, skip: Callable[[], Any]
    ) -> None:
        """See Distribution. Never needed here."""
        raise NotImplementedError("Keras accumulates the gradients itself")
