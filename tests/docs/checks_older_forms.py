"""Forms that older programs use: where they work, and what Keras 3 says to the others. Legacy tf.keras."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.keras import optimizers
from util_expect import raises

import horovod.keras as hvd3
import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd

assert os.environ["TF_USE_LEGACY_KERAS"] == "1"


def check_practice_as_written() -> None:
    """The practice's lines, word for word where it gives them; the model is ours."""
    generator = np.random.default_rng(hvd.rank())
    x = generator.normal(size=(64, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.float32)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, activation="sigmoid", input_shape=(4,))])
    opt = optimizers.SGD(0.01 * hvd.size())
    opt = hvd.DistributedOptimizer(opt)
    model.compile(
        loss="binary_crossentropy", optimizer=opt, metrics=["accuracy"], experimental_run_tf_function=False
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=3, verbose=1),
    ]
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        if hvd.rank() == 0:
            callbacks.append(
                tf.keras.callbacks.ModelCheckpoint(
                    "./checkpoint.h5", save_best_only=True, save_weights_only=False
                )
            )
        history = model.fit(
            x, y, batch_size=4, validation_data=(x, y), epochs=6, callbacks=callbacks, verbose=0
        )
        assert os.path.exists("checkpoint.h5") == (hvd.rank() == 0)
        os.chdir("/")
    losses = history.history["loss"]
    assert losses[-1] < losses[1], losses  # the first batch was computed before the broadcast
    for weight in model.get_weights():
        np.testing.assert_array_equal(weight, hvd.broadcast(weight, 0))


def check_keras_3_names_the_argument_it_rejects() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    with raises(TypeError, "experimental_run_tf_function"):
        model.compile(optimizer="sgd", loss="mse", experimental_run_tf_function=False)


def check_optimizer_variables() -> None:
    assert isinstance(keras.optimizers.Adam().variables, list)  # so the () of older programs must go
    distributed = hvd3.DistributedOptimizer(keras.optimizers.Adam())
    assert len(distributed.variables()) == len(distributed.variables)


def check_tf_optimizer_is_gone() -> None:
    assert not hasattr(keras.optimizers, "TFOptimizer")


def check_what_keras_3_has_no_more() -> None:
    assert not hasattr(keras.Model, "fit_generator") and not hasattr(keras.backend, "set_session")
    assert not hasattr(tf, "estimator")
    with raises(RuntimeError, "callbacks.BroadcastGlobalVariablesCallback"):
        hvd3.broadcast_global_variables(0)
    with raises(RuntimeError, "broadcast_variables"):
        hvd_tf.broadcast_global_variables(0)
    with raises(TypeError, "horovod.tensorflow.DistributedOptimizer()"):
        hvd3.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))


def check_generator_in_fit() -> None:
    """What fit_generator() has become."""

    def batches() -> Iterator[tuple[Any, Any]]:
        generator = np.random.default_rng(hvd.rank())
        while True:
            x = generator.normal(size=(8, 4)).astype(np.float32)
            yield x, x.sum(axis=1, keepdims=True)

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(hvd3.DistributedOptimizer(keras.optimizers.SGD(0.05)), "mse")
    callbacks = [hvd3.callbacks.BroadcastGlobalVariablesCallback(0), hvd3.callbacks.MetricAverageCallback()]
    history = model.fit(batches(), steps_per_epoch=5, epochs=3, callbacks=callbacks, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0], history.history
    for weight in model.get_weights():
        np.testing.assert_array_equal(weight, hvd.broadcast(weight, 0))


def check_layers_of_tf1() -> None:
    tf1 = tf.compat.v1
    with tf1.Graph().as_default(), tf1.Session() as session:
        x = tf1.random_normal([8, 4], seed=hvd.rank())
        loss = tf1.reduce_mean(tf1.square(tf1.layers.dense(x, 1, use_bias=False) - tf1.reduce_sum(x)))
        train = hvd_tf.DistributedOptimizer(tf1.train.GradientDescentOptimizer(0.01)).minimize(loss)
        session.run(tf1.global_variables_initializer())
        session.run(hvd_tf.broadcast_global_variables(0))
        for _ in range(3):
            session.run(train)
        (weights,) = session.run(tf1.trainable_variables())
    np.testing.assert_array_equal(weights, hvd.broadcast(weights, 0))
