"""The kinds of Keras: Keras 3 with its backends, and
legacy Keras (tf_keras; tf.keras up to TF 2.15)."""

from __future__ import annotations

import importlib
from typing import Any

TENSORFLOW, TORCH, JAX = "tensorflow", "torch", "jax"


def is_legacy(keras: Any) -> bool:
    """Whether a Keras module is older than Keras 3."""
    return not hasattr(keras, "ops")  # tf.keras has no version in some releases


def is_keras3_optimizer(optimizer: Any) -> bool:
    """Whether an optimizer is one of Keras 3's, whichever module its user has imported."""
    return hasattr(type(optimizer), "stateless_apply")


def backend_of(keras: Any) -> str:
    """The name of the framework that a Keras module computes with.

    NotImplementedError if we can't.
    """
    name = TENSORFLOW if is_legacy(keras) else str(keras.backend.backend())
    if name not in (TENSORFLOW, TORCH, JAX):
        raise NotImplementedError(
            f"Horovod works with Keras on TensorFlow, PyTorch or JAX, not on {name}: set KERAS_BACKEND to "
            "tensorflow, torch or jax before keras is imported"
        )
    return name


def session_of_legacy_keras() -> Any:
    """The TF1 session that legacy Keras runs its graphs in; tf.keras itself does not tell."""
    return importlib.import_module("tensorflow").compat.v1.keras.backend.get_session()


def collectives_of(keras: Any) -> Any:
    """The Horovod module for a Keras module's tensors."""
    return importlib.import_module(f"horovod.{backend_of(keras)}")
