"""Several passes per step in TF1 graphs: gradients are
summed on each rank and reduced on every k-th pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.distributed_options import check_passes


class LocalGradientAggregationHelper:
    """Sums gradients in variables of the graph; on the k-th pass it reduces and applies them.

    allreduce_func: called with the summed gradients and their variables, gives the reduced ones.
    average_aggregated_gradients: divide by k after the reduction.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int = 0,
    ) -> None:
        check_passes(backward_passes_per_step)
        self.backward_passes_per_step = backward_passes_per_step
        self.sparse_as_dense = sparse_as_dense
        self._allreduce = allreduce_func
        self._average = average_aggregated_gradients
        self._ready: Any = None  # whether this pass is a k-th one

    def compute_gradients(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """On a k-th pass the reduced sums; on others the
        sums so far, which are not to be applied."""
        dense = [self._dense(gradient) for gradient in grads]
        if self.backward_passes_per_step == 1:
            return self._allreduce(dense, variables)
        present = [i for i, gradient in enumerate(dense) if gradient is not None]
        owners = [variables[i] for i in present]
        counter = _variable("aggregation_counter", tf.zeros([], tf.int32))
        sums = [_variable("aggregated_gradient", tf.zeros(dense[i].shape, dense[i].dtype)) for i in present]
        passes = counter.assign_add(1)
        self._ready = tf.equal(passes, self.backward_passes_per_step)
        totals = [total.assign_add(dense[i]) for total, i in zip(sums, present, strict=True)]

        def reduce() -> list[Any]:
            values = [tf.identity(total) for total in totals]
            with tf.control_dependencies([*values, passes]):
                cleared = [total.assign(tf.zeros_like(total)) for total in sums]
                cleared.append(counter.assign(0))
            with tf.control_dependencies(cleared):
                reduced = self._allreduce([tf.identity(value) for value in values], owners)
            return [value / self.backward_passes_per_step for value in reduced] if self._average else reduced

        results: list[Any] = [None] * len(dense)
        branches = tf.cond(self._ready, reduce, lambda: [tf.identity(total) for total in totals])
        for i, value in zip(present, branches if isinstance(branches, list) else [branches], strict=True):
            results[i] = value
        return results

    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], gradients: Sequence[Any], name: str | None = None
    ) -> Any:
        """The op that applies on a k-th pass and does nothing on others."""
        if self.backward_passes_per_step == 1:
            return apply_grads_closure()
        if self._ready is None:
            raise ValueError(
                "with backward_passes_per_step > 1 apply_gradients() needs compute_gradients() first"
            )

        def apply() -> Any:
            with tf.control_dependencies([apply_grads_closure()]):
                return tf.no_op()

        with tf.control_dependencies([gradient for gradient in gradients if gradient is not None]):
            return tf.group(tf.cond(self._ready, apply, tf.no_op), name=name)

    def _dense(self, gradient: Any) -> Any:
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        if self.sparse_as_dense:
            return tf.convert_to_tensor(gradient)
        if self.backward_passes_per_step == 1:
            return gradient
        raise ValueError("backward_passes_per_step > 1 with tf.IndexedSlices needs sparse_as_dense=True")


def _variable(name: str, initial: Any) -> Any:
    # Local: checkpoints have nothing of it, so those of programs without it fit.
    return tf.compat.v1.Variable(
        initial,
        trainable=False,
        use_resource=True,
        name=name,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
    )
