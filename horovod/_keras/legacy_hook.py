"""What is added to the class of an optimizer of legacy
Keras: tf_keras, or tf.keras up to TensorFlow 2.15."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from horovod._keras.callable_list import CallableList
from horovod._keras.classes import distribution_of
from horovod._keras.legacy_aggregation import AggregationHelper

_Optimizer: Any = object  # stands for the optimizer's class, which comes next
_COMPUTE = "compute_gradients"

# Attributes of optimizers. Between compute_gradients() and apply_gradients(): in which graph that was, or
# _EAGERLY. The first function that was traced to apply what was computed outside of it. And while what was
# computed is being applied.
_COMPUTED, _APPLIED_IN, _APPLYING = "_horovod_computed", "_horovod_applied_in", "_horovod_applying"
_EAGERLY = "eagerly"


def is_legacy_optimizer(optimizer: Any) -> bool:
    """Whether an optimizer is one of legacy Keras's, of the current or of the still older kind."""
    return any(hasattr(type(optimizer), name) for name in ("aggregate_gradients", "_aggregate_gradients"))


class LegacyHook(_Optimizer):  # type: ignore[misc]
    """Reduces in compute_gradients(), else in
    apply_gradients() or where loss scaling aggregates."""

    def register_local_var(self, var: Any) -> None:
        """Leaves the gradients of a variable on this rank."""
        distribution_of(self).add_local(var)

    @property
    def variables(self) -> CallableList:
        """The optimizer's variables, as a property and as a method."""
        variables = super().variables
        return CallableList(variables() if callable(variables) else variables)

    @property
    def _agg_helper(self) -> AggregationHelper | None:
        """What sums several passes, under the name that programs know; None with one pass."""
        distribution: Any = distribution_of(self)
        if distribution.options.backward_passes_per_step == 1:
            return None
        return AggregationHelper(distribution, self._horovod_note_computed)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """As the optimizer's, with the gradients of all ranks: what is clipped then is the same
        everywhere.

        With backward_passes_per_step = k > 1 they are sums: of all ranks after every k-th pass,
        else of this rank so far, which apply_gradients() does not apply.
        """
        plain: Any = super()
        compute = plain.compute_gradients if hasattr(plain, _COMPUTE) else plain._compute_gradients
        pairs = list(compute(*args, **kwargs))
        if not pairs:
            return pairs
        gradients, variables = zip(*pairs, strict=True)
        return list(zip(self._allreduce(gradients, variables), variables, strict=True))

    def _allreduce(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """What compute_gradients() does to the gradients,
        for programs that have computed them in another way."""
        helper = self._agg_helper
        if helper is not None:
            return helper.compute_gradients(grads, vars)
        self._horovod_note_computed()
        return distribution_of(self).reduce(grads, vars)

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Any:
        """compute_gradients() under the older kind's name, which programs use with both kinds."""
        older = {} if hasattr(super(), _COMPUTE) else {"grad_loss": grad_loss}
        return self.compute_gradients(loss, var_list, tape=tape, **older)

    def apply_gradients(self, grads_and_vars: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        """As the optimizer's, with the gradients of all ranks.

        Not reduced if compute_gradients() did it, whatever has become of them since; or if the
        caller says that they are: skip_gradients_aggregation=True, or for the older kind
        experimental_aggregate_gradients=False.
        """
        plain_apply = super().apply_gradients
        pairs, computed = self._horovod_marked(grads_and_vars)
        aggregated = kwargs.get("skip_gradients_aggregation", False) or not kwargs.get(
            "experimental_aggregate_gradients", True
        )
        helper = self._agg_helper
        if computed and helper is not None:
            self._horovod_create_variables([variable for _, variable in pairs])
            helper.apply_gradients(lambda: self._horovod_applied(plain_apply, pairs, *args, **kwargs), self)
            return self.iterations
        if aggregated or not pairs:
            return plain_apply(pairs, *args, **kwargs)
        distribution = distribution_of(self)
        gradients, variables = zip(*pairs, strict=True)

        def apply(reduced: list[Any]) -> Any:
            return plain_apply(list(zip(reduced, variables, strict=True)), *args, **kwargs)

        if helper is None:
            return apply(distribution.reduce(gradients, variables))
        self._horovod_create_variables(variables)
        distribution.accumulate(gradients, variables, apply, lambda: self.iterations.assign_add(1))
        return self.iterations

    def aggregate_gradients(self, grads_and_vars: Iterable[Any]) -> Any:
        """As the optimizer's, with the gradients of all ranks.

        Called by a loss-scale optimizer around it.
        """
        return super().aggregate_gradients(self._horovod_aggregated(grads_and_vars))

    def _aggregate_gradients(self, grads_and_vars: Iterable[Any]) -> Any:
        return super()._aggregate_gradients(self._horovod_aggregated(grads_and_vars))

    def _horovod_applied(self, plain_apply: Any, *args: Any, **kwargs: Any) -> Any:
        self.__dict__[_APPLYING] = True
        try:
            return plain_apply(*args, **kwargs)
        finally:
            del self.__dict__[_APPLYING]

    def _horovod_aggregated(self, grads_and_vars: Iterable[Any]) -> list[tuple[Any, Any]]:
        if _APPLYING in self.__dict__:
            return list(grads_and_vars)
        pairs, computed = self._horovod_marked(grads_and_vars)
        distribution = distribution_of(self)
        fresh = any(gradient is not None and not distribution.is_reduced(gradient) for gradient, _ in pairs)
        if (fresh or computed) and self._agg_helper is not None:
            raise ValueError(
                "backward_passes_per_step > 1 with mixed_float16 needs the loss-scale optimizer inside: "
                "hvd.DistributedOptimizer(mixed_precision.LossScaleOptimizer(optimizer), ...)"
            )
        if not fresh:
            return pairs
        reduced = distribution.reduce([g for g, _ in pairs], [v for _, v in pairs])
        return list(zip(reduced, [v for _, v in pairs], strict=True))

    def _horovod_marked(self, grads_and_vars: Iterable[Any]) -> tuple[list[tuple[Any, Any]], bool]:
        """The pairs, and whether they are made from what compute_gradients() gave: those are marked
        as reduced."""
        from horovod.tensorflow.gradient_marks import mark_reduced

        pairs, computed = list(grads_and_vars), self._horovod_take_computed()
        if computed:
            mark_reduced(gradient for gradient, _ in pairs)
        return pairs, computed

    def _horovod_take_computed(self) -> bool:
        """Whether what is applied now was computed by compute_gradients()."""
        from horovod.tensorflow.util import _executing_eagerly

        where = self.__dict__.pop(_COMPUTED, None)
        if _executing_eagerly():
            return where is _EAGERLY
        graph = _outermost_graph()
        if where is not None and where is not _EAGERLY:
            return where() is graph
        # A function may be traced several times, and runs without this. Others compute their own.
        function = getattr(graph, "name", "")
        if where is _EAGERLY:
            self.__dict__.setdefault(_APPLIED_IN, function)
        return self.__dict__.get(_APPLIED_IN) == function

    def _horovod_note_computed(self) -> None:
        from horovod.tensorflow.util import _executing_eagerly

        self.__dict__[_COMPUTED] = _EAGERLY if _executing_eagerly() else weakref.ref(_outermost_graph())

    def _horovod_create_variables(self, variables: Any) -> None:
        # Otherwise made in apply_gradients(), which is in a branch of the graph then.
        import tensorflow as tf

        with tf.init_scope():
            if hasattr(self, "build"):
                self.build(variables)
            else:
                self._create_all_weights(variables)


def _outermost_graph() -> Any:
    """That of the function that is being traced, or the graph of a session."""
    import tensorflow as tf

    graph = tf.compat.v1.get_default_graph()
    of_function = tf.compat.v1.executing_eagerly_outside_functions()
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        if of_function and not outer.building_function:
            break
        graph = outer
    return graph
