"""The same variables on all ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from horovod._keras import flavours
from horovod.common.arrays import consecutive

_BYTES_EACH = 4  # of a variable's numbers, about


def broadcast_variables(keras: Any, variables: Iterable[Any], root_rank: int) -> None:
    """Overwrites variables, which all ranks have in the same order, with the root's."""
    listed = list(variables)
    if flavours.backend_of(keras) == flavours.TENSORFLOW:
        from horovod import tensorflow as hvd_tf  # TensorFlow need not be there for others

        _run(hvd_tf.broadcast_variables(listed, root_rank))
        return
    from horovod import numpy as hvd_np

    for part in consecutive(math.prod(variable.shape) * _BYTES_EACH for variable in listed):
        # One after another: each part's values are in memory twice while it is under way.
        arrays = {i: np.array(keras.ops.convert_to_numpy(listed[i])) for i in part}
        hvd_np.broadcast_parameters([(f"keras_variable.{i}", arrays[i]) for i in part], root_rank)
        for i, array in arrays.items():
            listed[i].assign(array)


def broadcast_global_variables(keras: Any, root_rank: int) -> None:
    """Overwrites all variables of a TF1 graph with the root's.

    RuntimeError where there is no such graph.
    """
    if flavours.is_legacy(keras):
        from horovod import tensorflow as hvd_tf

        _run(hvd_tf.broadcast_global_variables(root_rank))
        return
    raise RuntimeError(
        "there are no global variables in Keras 3: use "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank) with model.fit(), or broadcast "
        "model.variables and optimizer.variables with "
        "horovod.tensorflow.broadcast_variables()"
    )


def trained_with(model: Any) -> list[Any]:
    """The variables that must be the same at the start: a model's and its optimizer's.

    Not the states of random generators: dropout should differ from rank to rank.
    """
    variables = [v for v in model.variables if not _is_random_state(v)]
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        own = optimizer.variables
        variables.extend(own() if callable(own) and not isinstance(own, list) else own)
    return variables


def identity_of(variable: Any) -> int:
    """A number by which to know a variable, whether Keras 3's or the TensorFlow variable behind it."""
    behind = getattr(variable, "_value", None)
    # On JAX there is an array that is replaced whenever the variable changes, and none within fit().
    return id(behind if hasattr(behind, "assign") or hasattr(behind, "data_ptr") else variable)


def _is_random_state(variable: Any) -> bool:
    return str(getattr(variable, "name", "")) == "seed_generator_state"


def _run(op: Any) -> None:
    if op is not None:  # legacy Keras in a TF1 graph
        flavours.session_of_legacy_keras().run(op)
