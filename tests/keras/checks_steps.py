"""Steps of the training are counted without a callback, and once with it."""

from __future__ import annotations

import importlib.util
from typing import Any

import keras_setup as setup
from keras_setup import hvd, keras
from util_expect import cases, skip

CALLBACKS = "without-callback", "with-callback"


def counted(optimizer: Any, callback: str = CALLBACKS[0], epochs: int = 2, **options: Any) -> int:
    """The steps of so many epochs, after one that does not count."""
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)] if callback == CALLBACKS[1] else []
    model = setup.trained_together(optimizer, callbacks=callbacks, **options)
    before = hvd.metrics()["steps_total"]
    x, y, batch = setup.share(setup.X), setup.share(setup.Y), options.get("batch", setup.HALF)
    model.fit(x, y, batch_size=batch, epochs=epochs, callbacks=callbacks, verbose=0, shuffle=False)
    return int(hvd.metrics()["steps_total"] - before)


@cases(*CALLBACKS)
def check_fit(callback: str) -> None:
    assert counted(hvd.DistributedOptimizer(setup.sgd()), callback) == 2 * setup.STEPS
    grouped = hvd.DistributedOptimizer(setup.sgd(), groups=2)
    assert counted(grouped, callback) == 2 * setup.STEPS


@cases(*CALLBACKS)
def check_step_by_step(callback: str) -> None:
    assert counted(hvd.DistributedOptimizer(setup.sgd()), callback, run_eagerly=True) == 2 * setup.STEPS


@cases(*CALLBACKS)
def check_steps_per_execution(callback: str) -> None:
    """Keras then tells callbacks only of the last of them."""
    if on_torch():
        skip("not there on torch")
    optimizer = hvd.DistributedOptimizer(setup.sgd())
    assert counted(optimizer, callback, steps_per_execution=2) == 2 * setup.STEPS


@cases(*CALLBACKS)
def check_passes(callback: str) -> None:
    if setup.ON_JAX:
        skip("Keras accumulates the gradients itself there")
    optimizer = hvd.DistributedOptimizer(setup.sgd(), backward_passes_per_step=2)
    assert counted(optimizer, callback) == setup.STEPS


@cases(*CALLBACKS)
def check_another_optimizer(callback: str) -> None:
    """Who reduces otherwise may have the callback say what a step is."""
    expected = 2 * setup.STEPS if callback == CALLBACKS[1] else 0
    assert counted(setup.sgd(), callback) == expected


@cases(*CALLBACKS)
def check_mixed_precision(callback: str) -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        assert counted(hvd.DistributedOptimizer(setup.sgd(0.01)), callback) == 2 * setup.STEPS
    finally:
        keras.mixed_precision.set_global_policy("float32")


@cases(*CALLBACKS)
def check_without_others(callback: str) -> None:
    """Ranks that are not in the set train on their own; so does one that is alone in it."""
    process_set = hvd.add_process_set([0])
    optimizer = hvd.DistributedOptimizer(setup.sgd(), process_set=process_set)
    # What JAX compiles for ranks that are not in the set has no calls, and only calls tell.
    expected = 0 if setup.ON_JAX and hvd.rank() != 0 else 2 * setup.STEPS
    assert counted(optimizer, callback) == expected
    hvd.remove_process_set(process_set)


@cases(*CALLBACKS)
def check_train_step_with_a_tape(callback: str) -> None:
    """A model's own train_step(); its optimizer is not distributed."""
    if setup.ON_JAX or importlib.util.find_spec("tensorflow") is None or on_torch():
        skip("tapes are TensorFlow's")
    import tensorflow as tf

    import horovod.tensorflow as hvd_tf

    class Model(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = setup.small_model()

        def call(self, x: Any) -> Any:
            return self.inner(x)

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self.inner(x) - y))
            weights = self.inner.trainable_variables
            gradients = hvd_tf.DistributedGradientTape(tape).gradient(loss, weights)
            self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return {"loss": loss}

    assert counted(setup.sgd(), callback, model=Model) == 2 * setup.STEPS


def on_torch() -> bool:
    return not setup.LEGACY and str(keras.backend.backend()) == "torch"
