"""hvd.DistributedOptimizer() and the wrappers of TF1's optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod.common.basics import Adasum, Average
from horovod.common.collectives import check_adasum
from horovod.common.distributed_options import DistributedOptions, Groups
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper, _variable
from horovod.tensorflow.gradient_reduction import GradientReduction, LocalVariables, checked_groups
from horovod.tensorflow.reductions import allreduce
from horovod.tensorflow.step_ends import ending, kind_of
from horovod.tensorflow.util import _executing_eagerly

_Optimizer: Any = tf.compat.v1.train.Optimizer


class _Wrapper(_Optimizer):  # type: ignore[misc]
    """A TF1 optimizer that leaves everything to another one."""

    def __init__(self, optimizer: Any, use_locking: bool, options: DistributedOptions) -> None:
        name = options.name or f"Distributed{type(optimizer).__name__}"
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._options = options

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """As the wrapped optimizer's."""
        return list(self._optimizer.compute_gradients(*args, **kwargs))

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """As the wrapped optimizer's."""
        return self._optimizer.apply_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As the wrapped optimizer's."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """As the wrapped optimizer's."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """As the wrapped optimizer's."""
        return self._optimizer.variables(*args, **kwargs)


class _DistributedOptimizer(_Wrapper):
    """Reduces the gradients in compute_gradients()."""

    def __init__(self, optimizer: Any, use_locking: bool, options: DistributedOptions) -> None:
        super().__init__(optimizer, use_locking, options)
        reduction = GradientReduction(self._name, options)
        self._local = local = LocalVariables(options)
        self._aggregation = LocalGradientAggregationHelper(
            options.backward_passes_per_step,
            lambda gradients, variables: local.reduce_others(reduction, gradients, variables),
            options.sparse_as_dense,
            options.average_aggregated_gradients,
        )

    def register_local_var(self, var: Any) -> None:
        """Leaves the gradients of a variable on this rank."""
        self._local.add(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The wrapped optimizer's gradients, reduced over the ranks."""
        pairs = super().compute_gradients(*args, **kwargs)
        variables = [variable for _, variable in pairs]
        reduced = self._aggregation.compute_gradients([gradient for gradient, _ in pairs], variables)
        return list(zip(reduced, variables, strict=True))

    def apply_gradients(self, grads_and_vars: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        """As the wrapped optimizer's, on every pass that completes a step."""
        pairs = list(grads_and_vars)

        def apply() -> Any:
            return self._optimizer.apply_gradients(pairs, *args, **kwargs)

        return self._aggregation.apply_gradients(apply, [gradient for gradient, _ in pairs])


def _copy(variable: Any) -> Any:
    """The value of now; what is read from a ref variable would change with it."""
    if hasattr(variable, "handle"):
        return tf.identity(variable)
    return tf.raw_ops.DeepCopy(x=variable.read_value())


class _DistributedAdasumOptimizer(_Wrapper):
    """Each rank takes its own step; then the ranks' steps are combined by Adasum."""

    def apply_gradients(
        self, grads_and_vars: Iterable[Any], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Applies locally, and on every k-th pass replaces
        what has changed since the last such pass."""
        pairs = list(grads_and_vars)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        if self._options.backward_passes_per_step == 1:
            starts = [_copy(variable) for variable in variables]
            with tf.control_dependencies(starts):
                applied = super().apply_gradients(pairs, global_step=global_step, name=name)
            return self._combine(variables, starts, applied)
        return self._apply_passes(pairs, variables, global_step, name)

    def _apply_passes(
        self, pairs: list[Any], variables: list[Any], global_step: Any, name: str | None
    ) -> Any:
        counter = _variable("adasum_passes", tf.zeros([], tf.int32))
        copies = [_variable("adasum_start", tf.zeros(v.shape, v.dtype.base_dtype)) for v in variables]
        passed = counter.assign_add(1)

        def remember() -> Any:
            return tf.group(*[copy.assign(_copy(v)) for copy, v in zip(copies, variables, strict=True)])

        def combine() -> Any:
            starts = [tf.identity(copy) for copy in copies]
            return tf.group(self._combine(variables, starts, counter.assign(0)))

        with tf.control_dependencies([tf.cond(tf.equal(passed, 1), remember, tf.no_op)]):
            applied = super().apply_gradients(pairs, global_step=global_step, name=name)
        with tf.control_dependencies([applied]):
            return tf.group(
                tf.cond(tf.equal(passed, self._options.backward_passes_per_step), combine, tf.no_op)
            )

    def _combine(self, variables: list[Any], starts: list[Any], after: Any) -> Any:
        with (
            tf.control_dependencies([] if after is None else [after]),
            tf.name_scope(f"{self._name}_Allreduce"),
        ):
            changes = [_copy(v) - start for v, start in zip(variables, starts, strict=True)]
            combined = [
                allreduce(
                    change,
                    device_dense=self._options.device_dense,
                    compression=self._options.compression,
                    op=Adasum,
                )
                for change in changes
            ]
            combined = ending(kind_of(self._name, variables), combined)
            assigned = [
                variable.assign(start + change, read_value=False)
                for variable, start, change in zip(variables, starts, combined, strict=True)
            ]
            return None if _executing_eagerly() else tf.group(*assigned)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """An optimizer that works with the gradients of all ranks: for tf.compat.v1.train and Keras
    optimizers.

    compression: what travels, for example hvd.Compression.fp16.
    sparse_as_dense: turn tf.IndexedSlices into tensors first.
    backward_passes_per_step: reduce and apply only on every k-th pass, after summing on each rank.
    op: hvd.Average, Sum, or (TF1 optimizers) Adasum.
    gradient_predivide_factor: with op=Average, divide by this before the sum and by size / this
    after it.
    average_aggregated_gradients: divide by backward_passes_per_step, too.
    groups: a number of groups, or lists of variables, whose gradients travel together.
    scale_local_gradients: divide the gradients of local variables by the number of ranks.
    """
    options = DistributedOptions(
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=checked_groups(groups, num_groups),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    if not isinstance(optimizer, _Optimizer):
        from horovod._keras.optimizer import distribute  # here: TF1 programs do not need it

        return distribute(optimizer, options)
    if backward_passes_per_step > 1 and _executing_eagerly():
        raise ValueError(
            "backward_passes_per_step > 1 with a tf.compat.v1.train optimizer needs a TF1 graph; in eager "
            "execution use a Keras optimizer"
        )
    if op == Adasum:
        check_adasum(process_set)
        return _DistributedAdasumOptimizer(optimizer, use_locking, options)
    return _DistributedOptimizer(optimizer, use_locking, options)
