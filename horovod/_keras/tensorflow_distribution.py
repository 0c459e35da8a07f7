"""The gradients of an optimizer that computes with TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod._keras.distribution import Apply, local_variables
from horovod.common.distributed_options import DistributedOptions
from horovod.tensorflow.gradient_marks import is_reduced, mark_reduced
from horovod.tensorflow.gradient_reduction import GradientReduction, LocalVariables
from horovod.tensorflow.util import tf_variable


class TensorFlowDistribution:
    """A distribution.Distribution for TensorFlow, eagerly and in a tf.function."""

    def __init__(self, options: DistributedOptions, name: str) -> None:
        self.options = options
        self._reduction = GradientReduction(options.name or f"Distributed{name}", options)
        self._local = LocalVariables(options)
        # Sums of the passes since the last step. Not the optimizer's variables, so never saved with
        # it.
        self._passed: Any = None
        self._summed_for: list[Any] | None = None  # the variables whose gradients are summed by place
        self.sums: dict[int, Any] = {}  # by place; a gradient that is None at first may be there later

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
        whole = self.aggregate(gradients, variables)
        self.apply_or_skip(lambda: apply(whole), skip)

    @property
    def counter(self) -> Any:
        """How many passes there were since the last step, a variable."""
        self._make_sums({})
        return self._passed

    def aggregate(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Adds a pass's gradients to those before.

        The reduced sums on every k-th pass, else those so far.
        """
        if not tf.compat.v1.executing_eagerly_outside_functions():
            raise ValueError(  # the order of what is done here would be left open
                "backward_passes_per_step > 1 of a Keras optimizer does not work in a TF1 graph: leave out "
                "tf.compat.v1.disable_eager_execution(), or use horovod.tensorflow.DistributedOptimizer() "
                "with an optimizer of tf.compat.v1.train"
            )
        owners = [tf_variable(variable) for variable in variables]
        if self._summed_for is None:
            self._summed_for = owners
        if list(map(id, owners)) != list(map(id, self._summed_for)):
            raise ValueError(
                "backward_passes_per_step > 1 needs the same variables in each pass: give each part of a "
                "model that is trained in turns an optimizer of its own"
            )
        dense = [self._dense(gradient) for gradient in gradients]
        present = _places(dense, lambda gradient: gradient is not None)
        reduced = {i for i in present if is_reduced(gradients[i])}
        self._make_sums({i: dense[i] for i in present})
        for i in present:
            self.sums[i].assign_add(dense[i])
        self._passed.assign_add(1)
        summed = sorted(self.sums)

        # With a constant in front, as tf.cond() has another form for nothing and for one value.
        def complete() -> list[Any]:
            sums: list[Any] = list(dense)
            for i, total in self.sums.items():
                sums[i] = tf.identity(total)
                total.assign(tf.zeros_like(total))
            self._passed.assign(0)
            whole = self._reduce_all_but(reduced, sums, variables)
            if self.options.average_aggregated_gradients:
                passes = self.options.backward_passes_per_step
                whole = [None if value is None else value / passes for value in whole]
            return [tf.constant(0), *(whole[i] for i in summed)]

        def incomplete() -> list[Any]:
            return [tf.constant(0), *(tf.identity(self.sums[i]) for i in summed)]

        # All ranks count alike, so all of them take the branch with the reduction, or none.
        due = tf.equal(self._passed, self.options.backward_passes_per_step)
        _, *values = tf.nest.flatten(tf.cond(due, complete, incomplete))
        results: list[Any] = [None] * len(dense)
        for i, value in zip(summed, values, strict=True):
            results[i] = value
        return mark_reduced(results)

    def apply_or_skip(self, apply: Callable[[], Any], skip: Callable[[], Any]) -> None:
        """After aggregate(): apply() if this was a k-th pass, else skip()."""

        def complete() -> Any:
            apply()
            return tf.constant(True)

        def incomplete() -> Any:
            skip()
            return tf.constant(False)

        tf.cond(tf.equal(self._passed, 0), complete, incomplete)

    def _reduce_all_but(
        self, reduced: set[int], gradients: Sequence[Any], variables: Sequence[Any]
    ) -> list[Any]:
        for variable in local_variables(self.options):
            self._local.add(variable)
        results = list(gradients)
        places = [i for i in range(len(results)) if i not in reduced]
        # Generic names: a rank may have made layers that others have not, which numbers those that
        # follow.
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
                if i not in self.sums:
                    self.sums[i] = tf.Variable(tf.zeros(gradient.shape, gradient.dtype), trainable=False)
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
