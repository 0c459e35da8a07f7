"""Elastic training with Keras: the state and the callbacks, for whichever Keras the user has."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from horovod._keras import flavours
from horovod._keras.elastic_callbacks import (
    CommitStateCallbackImpl,
    UpdateBatchStateCallbackImpl,
    UpdateEpochStateCallbackImpl,
)
from horovod.common.arrays import Array
from horovod.common.basics import rank
from horovod.common.objects import broadcast_object
from horovod.common.variables_state import VariablesState

F = TypeVar("F", bound=Callable[..., Any])


class KerasVariablesState(VariablesState):
    """The state of a training with Keras 3 on torch or JAX."""

    keras: Any  # the module; given by the class that users see

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built or not model.weights:
            raise ValueError(
                "the model must be built before its state is made: call it once, or model.build(input_shape)"
            )
        self.model = model
        self.optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(model.trainable_variables)
        super().__init__(broadcast_object, rank, **kwargs)

    def _shared_variables(self) -> list[Any]:
        own = [] if self.optimizer is None else list(self.optimizer.variables)
        return [*self.model.weights, *own]

    def _own_variables(self) -> list[Any]:
        return [v for v in self.model.variables if str(v.name) == "seed_generator_state"]

    def _attach(self) -> None:
        """Gives the variables their values, which fit() keeps to itself on JAX, and takes back afterwards."""
        if hasattr(self.model, "jax_state_sync"):
            with contextlib.suppress(RuntimeError):  # a step that has failed may have had them
                self.model.jax_state_sync()

    def _read(self, variables: Sequence[Any]) -> list[Array]:
        self._attach()
        return [np.array(self.keras.ops.convert_to_numpy(variable)) for variable in variables]

    def _assign(self, variables: Sequence[Any], arrays: Sequence[Array]) -> None:
        self._attach()
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(np.array(array))  # a copy: torch keeps the memory that it is given


def classes_for(keras: Any, module: str) -> SimpleNamespace:
    """The state and the callbacks, derived from the classes of this Keras; `module` is where users find
    them."""
    plain = keras.callbacks.Callback
    members = {"keras": keras, "__module__": module}

    def derived(name: str, base: type[Any]) -> Any:
        return type(name, (base, plain), {**members, "__doc__": base.__doc__})

    return SimpleNamespace(
        KerasState=type("KerasState", (_state_base(keras),), {**members, "__doc__": _STATE}),
        CommitStateCallback=derived("CommitStateCallback", CommitStateCallbackImpl),
        UpdateBatchStateCallback=derived("UpdateBatchStateCallback", UpdateBatchStateCallbackImpl),
        UpdateEpochStateCallback=derived("UpdateEpochStateCallback", UpdateEpochStateCallbackImpl),
        run=importlib.import_module(f"horovod.{flavours.backend_of(keras)}.elastic").run,
    )


_STATE = """The state of a training with Keras: the variables of a built model and of its optimizer and,
one attribute for each other keyword, Python objects such as `epoch` and `batch`."""


def _state_base(keras: Any) -> type[Any]:
    if flavours.backend_of(keras) != flavours.TENSORFLOW:
        base: type[Any] = KerasVariablesState
    else:
        from horovod.tensorflow.elastic import TensorFlowKerasState

        backend = keras.backend

        class OnTensorFlow(TensorFlowKerasState):
            def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
                super().__init__(model, optimizer, backend, **kwargs)

        base = OnTensorFlow

    class Counting(base):  # type: ignore[misc]
        """Also knows how many batches of the epoch were done, which `state.batch` does not say."""

        def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
            super().__init__(model, optimizer, _batches_done=0, **kwargs)

    return Counting
