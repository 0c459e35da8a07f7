"""SyncBatchNormalization, with whichever Keras `tf.keras` is."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from util_expect import cases, raises

import horovod.tensorflow as hvd


def outcome(layer: Any, x: Any) -> tuple[Any, ...]:
    with tf.GradientTape() as tape:
        y = layer(x, training=True)
        loss = tf.reduce_sum(y * tf.cast(tf.range(4), tf.float32) + y**3)
    tape = (
        hvd.DistributedGradientTape(tape, op=hvd.Sum)
        if isinstance(layer, hvd.SyncBatchNormalization)
        else tape
    )
    gradients = tape.gradient(loss, layer.trainable_variables)
    return y.numpy(), [g.numpy() for g in gradients], [v.numpy() for v in layer.non_trainable_variables]


def check_sync_batch_normalization() -> None:
    n, r = hvd.size(), hvd.rank()
    x = np.random.default_rng(5).normal(size=(n, 6, 4)).astype(np.float32) * 3 + 1
    whole, gradients, statistics = outcome(
        tf.keras.layers.BatchNormalization(), tf.constant(x.reshape(n * 6, 4))
    )
    layer = hvd.SyncBatchNormalization()
    assert layer.name.startswith("sync_batch_normalization") and isinstance(layer, tf.keras.layers.Layer)
    mine, my_gradients, my_statistics = outcome(layer, tf.constant(x[r]))
    np.testing.assert_allclose(mine, whole.reshape(n, 6, 4)[r], rtol=1e-4, atol=1e-5)
    for actual, expected in zip(my_gradients + my_statistics, gradients + statistics, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4)
    compiled = tf.function(lambda x: hvd.SyncBatchNormalization.call(layer, x, training=True))
    np.testing.assert_allclose(compiled(tf.constant(x[r])), mine, rtol=1e-4, atol=1e-5)
    layer(tf.constant(x[r]), training=False)
    for wrong in (True, None):
        with raises(ValueError, "fused"):
            hvd.SyncBatchNormalization(fused=wrong)
    assert hvd.SyncBatchNormalization(fused=False, name="mine").name == "mine"
    again = hvd.SyncBatchNormalization.from_config(layer.get_config())
    assert isinstance(again, hvd.SyncBatchNormalization)


def check_sync_batch_normalization_of_a_large_mean() -> None:
    """The variance is that of the values, not of what float32 leaves of their squares."""
    x = 1000 + 0.01 * np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype(np.float32)
    y = hvd.SyncBatchNormalization(epsilon=1e-7)(tf.constant(x), training=True).numpy()
    deviations = np.concatenate(hvd.allgather_object(y)).std(axis=0)
    np.testing.assert_allclose(deviations, 1.0, rtol=0.01)


def make_others() -> None:
    """What a rank makes for itself numbers the names that Keras gives to the next."""
    for _ in range(hvd.rank()):
        tf.keras.Sequential([tf.keras.layers.Dense(1), hvd.SyncBatchNormalization()])(tf.ones([2, 3]))


@cases("function", "compiled")
def check_names_of_sync_batch_normalization(mode: str) -> None:
    """Of several layers and of one that is used twice, on ranks where they have other names."""
    x = np.random.default_rng(7).normal(size=(hvd.size(), 6, 4)).astype(np.float32)
    make_others()

    def trained(kind: Any, x: Any) -> tuple[list[Any], Any]:
        first, second, twice = kind(), kind(), kind()
        model = tf.keras.Sequential([first, tf.keras.layers.Activation("tanh"), twice, second])
        part = tf.function(lambda x: second(x * x, training=True))
        model.build(x.shape)

        def step(x: Any) -> Any:
            with tf.GradientTape() as tape:
                y = twice(model(x, training=True) + x, training=True)
                # Functions of their own, none of which has to wait for the other.
                y = y**3 + part(x + 1.0) + 2.0 * part(tf.exp(x))
                loss = tf.reduce_sum(y * tf.cast(tf.range(4), tf.float32))
            if kind is hvd.SyncBatchNormalization:
                tape = hvd.DistributedGradientTape(tape, op=hvd.Sum)
            return y, tape.gradient(loss, model.trainable_variables)

        y, gradients = tf.function(step, jit_compile=mode == "compiled")(tf.constant(x))
        return [gradient.numpy() for gradient in gradients], y.numpy()

    expected, whole = trained(tf.keras.layers.BatchNormalization, x.reshape(-1, 4))
    gradients, mine = trained(hvd.SyncBatchNormalization, x[hvd.rank()])
    tf.keras.backend.clear_session()  # other checks need the same names on all ranks
    np.testing.assert_allclose(mine, whole.reshape(x.shape)[hvd.rank()], rtol=1e-3, atol=1e-3)
    for actual, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-2, atol=1e-2)


def check_keras_variables_and_models() -> None:
    """Model and optimizer variables as Keras has them, with the tape."""
    r = hvd.rank()
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(3), tf.keras.layers.Dropout(0.1), tf.keras.layers.Dense(1)]
    )
    optimizer = tf.keras.optimizers.Adam(0.01)
    x = tf.ones([2, 4]) * (r + 1.0)

    @tf.function
    def step(first_batch: bool) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x, training=True) ** 2)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if first_batch:
            for each in (model.variables, optimizer.variables):
                hvd.broadcast_variables(each() if callable(each) else each, root_rank=0)
        return loss

    model(x)
    for number in range(4):
        step(number == 0)
    for variable in model.trainable_variables:
        value = tf.convert_to_tensor(variable)
        np.testing.assert_array_equal(hvd.broadcast(value, 0), value)
    grouped = hvd.DistributedGradientTape(tf.GradientTape(), groups=[list(model.trainable_variables)])
    grouped.register_local_source(model.trainable_variables[0])
