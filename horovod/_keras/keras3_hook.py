"""What is added to the class of a Keras 3 optimizer."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from horovod._keras.callable_list import CallableList
from horovod._keras.classes import distribution_of, hand_over

_Optimizer: Any = object  # stands for the optimizer's class, which comes next

# An attribute of optimizers whose gradients arrive reduced: from the loss-scale optimizer around
# them, or from stateless_apply().
_REDUCED_BEFORE = "_horovod_reduced_before"
# One of loss-scale optimizers: whether apply() has taken care of the reduction.
_WITHIN = "_horovod_within_apply"

PlainApply = Callable[[Any, Any], Any]  # of gradients and variables


class Keras3Hook(_Optimizer):  # type: ignore[misc]
    """Reduces in apply(), which fit(), apply_gradients() and custom loops all come through."""

    def register_local_var(self, var: Any) -> None:
        """Leaves the gradients of a variable on this rank."""
        distribution_of(self).add_local(var)

    @property
    def variables(self) -> CallableList:
        """The optimizer's variables; may be called, too, as this was a method once."""
        return CallableList(super().variables)

    def build(self, variables: Any) -> Any:
        """As the optimizer's."""
        result = super().build(variables)
        # Under the policy mixed_float16, model.compile() puts a LossScaleOptimizer around, which
        # calls this. It skips steps with gradients that are not finite on its rank: the reduction
        # must come first.
        caller = sys._getframe(1).f_locals.get("self")
        if getattr(caller, "inner_optimizer", None) is self:
            hand_over(self, caller, LossScaleHook)
            self.__dict__[_REDUCED_BEFORE] = True
        return result

    def apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> Any:
        """As the optimizer's, with the gradients of all ranks."""
        gradients = list(grads)
        given = None if trainable_variables is None else list(trainable_variables)
        if not self.built and given:
            # Within apply() this may happen too late: in a branch of a graph, or after the
            # reduction.
            self.build(given)
        if not gradients or not self.built or self.__dict__.get(_REDUCED_BEFORE):
            return super().apply(gradients, given)
        return self._horovod_apply(super().apply, gradients, given)

    def _horovod_apply(self, plain_apply: PlainApply, gradients: list[Any], given: list[Any] | None) -> Any:
        variables = self._trainable_variables if given is None else given
        distribution = distribution_of(self)
        if distribution.options.backward_passes_per_step == 1:
            return plain_apply(distribution.reduce(gradients, variables), given)
        return distribution.accumulate(
            gradients,
            variables,
            apply=lambda reduced: plain_apply(reduced, given),
            skip=lambda: _innermost(self)._iterations.assign_add(1),
        )

    def stateless_apply(
        self, optimizer_variables: Any, grads: Iterable[Any], trainable_variables: Any
    ) -> Any:
        """As the optimizer's, with the gradients of all ranks."""
        gradients = list(grads)
        if not self.__dict__.get(_REDUCED_BEFORE) and self.built:
            if distribution_of(self).options.backward_passes_per_step != 1:
                raise ValueError(
                    "backward_passes_per_step > 1 does not work with stateless_apply(): give "
                    "gradient_accumulation_steps to the optimizer"
                )
            gradients = distribution_of(self).reduce(gradients, self._trainable_variables)
        before = self.__dict__.get(_REDUCED_BEFORE, False)
        self.__dict__[_REDUCED_BEFORE] = True  # it may call apply()
        try:
            return super().stateless_apply(optimizer_variables, gradients, trainable_variables)
        finally:
            self.__dict__[_REDUCED_BEFORE] = before


class LossScaleHook(Keras3Hook):
    """The hook of a loss-scale optimizer around a distributed one, whose build() adds it.

    If build() is part of the first apply(), that one is not the hook's: the step is reduced in what
    it calls.
    """

    def apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> Any:
        """As the optimizer's, with the gradients of all ranks."""
        with self._horovod_within():
            return super().apply(grads, trainable_variables)

    def _tf_apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> Any:
        return self._horovod_go_on(super()._tf_apply, grads, trainable_variables)

    def _common_apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> Any:
        return self._horovod_go_on(super()._common_apply, grads, trainable_variables)

    def _horovod_go_on(self, plain_apply: PlainApply, grads: Any, trainable_variables: Any) -> Any:
        if self.__dict__.get(_WITHIN):
            return plain_apply(grads, trainable_variables)
        with self._horovod_within():
            return self._horovod_apply(plain_apply, list(grads), list(trainable_variables))

    @contextlib.contextmanager
    def _horovod_within(self) -> Iterator[None]:
        self.__dict__[_WITHIN] = True
        try:
            yield
        finally:
            self.__dict__[_WITHIN] = False


def _innermost(optimizer: Any) -> Any:
    return getattr(optimizer, "inner_optimizer", optimizer)
