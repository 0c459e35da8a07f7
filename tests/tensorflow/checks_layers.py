"""SyncBatchNormalization, with whichever Keras `tf.keras` is."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from util_expect import raises

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
