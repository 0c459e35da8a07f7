"""What programs for legacy Keras look at when gradients
of several passes are summed: `_agg_helper`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horovod._keras.tensorflow_distribution import TensorFlowDistribution


class AggregationHelper:
    """A view of a distributed optimizer's sums.

    `computed` is told when apply_gradients() of the optimizer is to leave gradients as they are.
    """

    def __init__(self, distribution: TensorFlowDistribution, computed: Callable[[], None]) -> None:
        self._distribution = distribution
        self._computed = computed
        options = distribution.options
        self.backward_passes_per_step = options.backward_passes_per_step
        self.sparse_as_dense = options.sparse_as_dense
        self.average_aggregated_gradients = options.average_aggregated_gradients

    @property
    def counter(self) -> Any:
        """The variable that counts the passes since the last step."""
        return self._distribution.counter

    @property
    def locally_aggregated_grads(self) -> dict[int, Any]:
        """The variables with the sums of these passes, by the
        gradient's place; made in the first pass."""
        return self._distribution.sums

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Adds a pass. On every k-th one the sums of all ranks, else this rank's so far."""
        self._computed()
        return self._distribution.aggregate(grads, vars)

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *_: Any) -> None:
        """After compute_gradients(): calls the closure on a
        k-th pass, else only counts the iteration."""
        self._distribution.apply_or_skip(apply_grads_closure, lambda: optimizer.iterations.assign_add(1))
