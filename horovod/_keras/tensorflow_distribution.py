"""The gradients of an optimizer that computes with TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod._keras.distribution import Apply, local_variables
from horovod._keras.options import Options
from horovod.tensorflow.reduced import is_reduced, mark_reduced
from horovod.tensorflow.reduction import GradientReduction, LocalVariables


class TensorFlowDistribution:
    """A distribution.Distribution for TensorFlow, eagerly and in a tf.function."""

    def __init__(self, options: Options, name: str) -> None:
        self.options = options
        self._reduction = GradientReduction(
            name=options.name or f"Distributed{name}",
            device_dense=options.device_dense,
            device_sparse=options.device_sparse,
            compression=options.compression,
            sparse_as_dense=options.sparse_as_dense,
            op=options.op,
            gradient_predivide_factor=options.gradient_predivide_factor,
            groups=options.groups,
            process_set=options.process_set,
        )
        self._local = LocalVariables(options.process_set, options.scale_local_gradients)
        # Sums of the passes since the last step. Not the optimizer's variables, so never saved with it.
        self._passed: Any = None
        self._sums: dict[int, Any] = {}  # by place; a gradient that is None at first may be there later

    def add_local(self, variable: Any) -> None:
        """See Distribution."""
        self._local.add(variable)

    def is_reduced(self, gradient: Any) -> bool:
        """See Distribution."""
        return is_reduced(gradient)

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """See Distribution."""
        return self._reduce_all_but(set(_places(gradients, is_reduced)), gradients, variables)

    def accumulate(
        self, gradients: Sequence[Any], variables: Sequence[Any], apply: Apply, skip: Callable[[], Any]
    ) -> None:
        """See Distribution."""
        dense = [self._dense(gradient) for gradient in gradients]
        present = _places(dense, lambda gradient: gradient is not None)
        reduced = {i for i in present if is_reduced(gradients[i])}
        self._make_sums({i: dense[i] for i in present})
        for i in present:
            self._sums[i].assign_add(dense[i])
        self._passed.assign_add(1)

        def complete() -> Any:
            sums: list[Any] = list(dense)
            for i, total in self._sums.items():
                sums[i] = tf.identity(total)
                total.assign(tf.zeros_like(total))
            self._passed.assign(0)
            whole = self._reduce_all_but(reduced, sums, variables)
            if self.options.average_aggregated_gradients:
                passes = self.options.backward_passes_per_step
                whole = mark_reduced([None if value is None else value / passes for value in whole])
            apply(whole)
            return tf.constant(True)

        def incomplete() -> Any:
            skip()
            return tf.constant(False)

        # All ranks count alike, so all of them take the branch with the reduction, or none.
        tf.cond(tf.equal(self._passed, self.options.backward_passes_per_step), complete, incomplete)

    def _reduce_all_but(
        self, reduced: set[int], gradients: Sequence[Any], variables: Sequence[Any]
    ) -> list[Any]:
        for variable in local_variables(self.options):
            self._local.add(variable)
        results = list(gradients)
        places = [i for i in range(len(results)) if i not in reduced]
        # Generic names: a rank may have made layers that others have not, which numbers those that follow.
        values = self._local.reduce_others(
            self._reduction,
            [results[i] for i in places],
            [variables[i] for i in places],
            use_generic_names=True,
        )
        for i, value in zip(places, values, strict=True):
            results[i] = value
        return mark_reduced(results)

    def _make_sums(self, gradients: dict[int, Any]) -> None:
        with tf.init_scope():  # also from within a tf.function, where variables may not be made later
            for i, gradient in gradients.items():
                if i not in self._sums:
                    self._sums[i] = tf.Variable(tf.zeros(gradient.shape, gradient.dtype), trainable=False)
            if self._passed is None:
                self._passed = tf.Variable(0, trainable=False)

    def _dense(self, gradient: Any) -> Any:
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        if not self.options.sparse_as_dense:
            raise ValueError(
                "backward_passes_per_step > 1 with tf.IndexedSlices (from an Embedding) needs "
                "sparse_as_dense=True"
            )
        return tf.convert_to_tensor(gradient)


def _places(values: Sequence[Any], condition: Callable[[Any], bool]) -> list[int]:
    return [i for i, value in enumerate(values) if condition(value)]
