"""Elastic training with TensorFlow: `@hvd.elastic.run` around a training function, and its state."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np
import tensorflow as tf

from horovod.common import elastic as _elastic
from horovod.common.arrays import Array
from horovod.common.basics import rank
from horovod.common.elastic import ObjectState, State
from horovod.common.objects import broadcast_object
from horovod.common.variables_state import VariablesState
from horovod.errors import HorovodInternalError
from horovod.tensorflow.util import tf_variable

__all__ = ["ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "run"]

P = ParamSpec("P")
R = TypeVar("R")

_OURS = re.compile(r"Horovod[A-Z]\w+")
# The program's own mistakes: another world would not help.
_MISTAKES = (tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError)


def run(func: Callable[P, R]) -> Callable[P, R]:
    """Makes `func(state, ...)` go on when ranks come, go or fail::

        @hvd.elastic.run
        def train(state):
            while state.batch < batches:
                step(next(data))
                state.batch += 1
                if state.batch % 10 == 0:
                    state.commit()


        train(hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0))

    When a rank fails, the others go back to the last commit, form a new world and call the function
    again; when hosts come or go, they do so at the next commit and lose nothing. All ranks start a
    call with the same state. What the function returns is the result.
    """
    return _elastic.run(func, _translated)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Failures of collectives within operations of TensorFlow as HorovodInternalError."""
    try:
        yield
    except tf.errors.OpError as error:
        if isinstance(error, _MISTAKES) or not _OURS.search(str(error)):
            raise
        raise HorovodInternalError(str(error)) from error


class _TensorFlowVariables(VariablesState):
    """Reads and writes tf.Variable and Keras variables; with a session those of its graph."""

    _session: Any = None

    def _read(self, variables: Sequence[Any]) -> list[Array]:
        plain = [tf_variable(variable) for variable in variables]
        values = [each.numpy() for each in plain] if self._session is None else self._session.run(plain)
        return [np.require(value, requirements=["W"]) for value in values]  # scalars are no arrays yet

    def _assign(self, variables: Sequence[Any], arrays: Sequence[Array]) -> None:
        for variable, array in zip(map(tf_variable, variables), arrays, strict=True):
            if self._session is None:
                variable.assign(array)
            else:
                variable.load(array, self._session)


class TensorFlowState(_TensorFlowVariables):
    """A state of variables and, one attribute for each other keyword, of Python objects."""

    def __init__(self, variables: Iterable[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        """`variables`: default: the global ones of the graph, as TF1 knows them.

        `session`: where the values are, in a TF1 graph.
        """
        self.variables = list(tf.compat.v1.global_variables() if variables is None else variables)
        self._session = session
        if session is None and not tf.executing_eagerly():
            self._session = tf.compat.v1.get_default_session()
            if self._session is None:
                raise ValueError("TensorFlowState() in a graph needs the session that has the variables")
        super().__init__(broadcast_object, rank, **kwargs)

    def _shared_variables(self) -> list[Any]:
        return self.variables


class TensorFlowKerasState(_TensorFlowVariables):
    """The state of a training with a Keras model: its variables, the optimizer's and, one attribute
    for each other keyword, Python objects."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        """`model`: built. `optimizer`: default: that which the model was compiled with.

        `backend`: keras.backend of legacy Keras, whose session is used in a TF1 graph.
        """
        if not getattr(model, "built", True) or not model.weights:
            raise ValueError(
                "the model must be built before its state is made: call it once, or model.build(input_shape)"
            )
        self.model = model
        self.optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        self.backend = backend
        if not tf.executing_eagerly():
            own = getattr(backend, "get_session", tf.compat.v1.get_default_session)
            self._session = own()
        # Most make their variables in the first step: a new rank would have fewer than the others.
        build = getattr(self.optimizer, "build", None)
        if build is not None and not getattr(self.optimizer, "built", False):
            build(model.trainable_variables)
        create = getattr(self.optimizer, "_create_all_weights", None)  # keras.optimizers.legacy
        if build is None and create is not None and self._session is None:
            create(model.trainable_variables)
        super().__init__(broadcast_object, rank, **kwargs)

    def _shared_variables(self) -> list[Any]:
        rates = [] if self._session else _settings(self.optimizer)
        return [*self.model.weights, *optimizer_variables(self.optimizer), *rates]

    def _own_variables(self) -> list[Any]:
        # Random numbers differ from rank to rank, but a batch that is repeated must draw the same.
        shared = {id(variable) for variable in self.model.weights}
        return [
            variable
            for variable in self.model.variables
            if id(variable) not in shared and str(variable.name) == "seed_generator_state"
        ]


def optimizer_variables(optimizer: Any) -> list[Any]:
    """A list of them, which once was the result of a method."""
    variables = [] if optimizer is None else optimizer.variables
    return list(variables() if callable(variables) and not isinstance(variables, list) else variables)


def _settings(optimizer: Any) -> list[Any]:
    """The learning rate and the like, which callbacks change: not among `variables` in legacy Keras."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    hyper = getattr(inner, "_hyper", {})  # of keras.optimizers.legacy
    values = [getattr(inner, "_learning_rate", None), *(hyper[name] for name in sorted(hyper))]
    return [value for value in values if isinstance(value, tf.Variable)]
