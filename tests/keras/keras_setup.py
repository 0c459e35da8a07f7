"""The Keras under test and small models, for the checks of this directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

if os.environ["KERAS_MODULE"] == "tf.keras":
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    keras = tf.keras
else:
    import keras

    import horovod.keras as hvd

LEGACY = not hasattr(keras, "ops")
ON_JAX = not LEGACY and keras.backend.backend() == "jax"

hvd.init()

STEPS, HALF, FEATURES = 4, 8, 5
_random = np.random.RandomState(0)
X = _random.randn(STEPS * 2 * HALF, FEATURES).astype("float32")
Y = X.sum(axis=1, keepdims=True) * 0.5 + _random.randn(len(X), 1).astype("float32") * 0.1

Make = Callable[[], Any]


def share(values: Any) -> Any:
    """This rank's half of each batch of 2 * HALF rows."""
    batches = values.reshape(STEPS, 2, HALF, *values.shape[1:])
    return batches[:, hvd.rank()].reshape(-1, *values.shape[1:])


def small_model() -> Any:
    """The same on all ranks."""
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    )


def trained_alone(optimizer: Any, batch: int = 2 * HALF, model: Make = small_model, **options: Any) -> Any:
    """The model after one process has seen the whole batches."""
    return _fit(model(), optimizer, X, Y, batch, options)


def trained_together(optimizer: Any, batch: int = HALF, model: Make = small_model, **options: Any) -> Any:
    """The model after each rank has seen its half of each batch."""
    return _fit(model(), optimizer, share(X), share(Y), batch, options)


def _fit(model: Any, optimizer: Any, x: Any, y: Any, batch: int, options: dict[str, Any]) -> Any:
    epochs, callbacks = options.pop("epochs", 1), options.pop("callbacks", [])
    # An object: Keras 3 can not load the name "mse" from an .h5 file.
    model.compile(optimizer, keras.losses.MeanSquaredError(), **options)
    model.fit(x, y, batch_size=batch, epochs=epochs, callbacks=callbacks, verbose=0, shuffle=False)
    return model


def assert_same(model: Any, other: Any, tolerance: float = 1e-5) -> None:
    """Two models must have the same weights."""
    for ours, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def assert_same_everywhere(values: list[Any]) -> None:
    """All ranks must have the same arrays, to the last bit."""
    import horovod.numpy as hvd_np

    for others in hvd_np.allgather_object(values):
        for ours, theirs in zip(values, others, strict=True):
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def sgd(rate: float = 0.1, **options: Any) -> Any:
    return keras.optimizers.SGD(rate, **options)
