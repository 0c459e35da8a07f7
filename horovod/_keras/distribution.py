"""The state that a distributed optimizer carries: how its gradients become those of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from horovod.common.distributed_options import DistributedOptions

Apply = Callable[[list[Any]], Any]


class Distribution(Protocol):
    """One for each optimizer; see tensorflow_, torch_ and jax_distribution."""

    options: DistributedOptions

    def add_local(self, variable: Any) -> None:
        """Leaves the gradients of a variable on this rank."""

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients of all ranks, in the same order; None stays None. Marks them as reduced.

        Those that carry the mark, from here or from hvd.DistributedGradientTape, stay as they are.
        """

    def is_reduced(self, gradient: Any) -> bool:
        """Whether a gradient carries the mark."""

    def accumulate(
        self, gradients: Sequence[Any], variables: Sequence[Any], apply: Apply, skip: Callable[[], Any]
    ) -> None:
        """Adds a pass's gradients to those before;
        apply(reduced sums) on every k-th pass, else skip()."""


def local_variables(options: DistributedOptions) -> list[Any]:
    """The variables of `local_layers`. Asked for at each use, as layers may be built late."""
    return [variable for layer in options.local_layers for variable in layer.trainable_weights]
