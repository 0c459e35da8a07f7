"""Keras programs of the time of sessions: K.set_session(), fit_generator(). Legacy Keras, nothing eager."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from util_expect import raises

import horovod.numpy as hvd_np
import horovod.tensorflow.keras as hvd

assert os.environ["TF_USE_LEGACY_KERAS"] == "1"

tf1 = tf.compat.v1
tf1.disable_eager_execution()
K = tf1.keras.backend
hvd.init()

BATCH, STEPS = 8, 6


def batches() -> Iterator[tuple[Any, Any]]:
    """Without end, as fit_generator() wants them; other ones on each rank."""
    generator = np.random.default_rng(hvd.rank())
    while True:
        x = generator.normal(size=(BATCH, 4)).astype(np.float32)
        yield x, x.sum(axis=1, keepdims=True)


def session_with_a_model() -> Any:
    K.clear_session()  # what the checks before have made
    config = tf1.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    K.set_session(tf1.Session(config=config))
    # From some starts, which chance would find now and then, these steps are too large to learn.
    start = tf.keras.initializers.GlorotUniform(seed=1 + hvd.rank())
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(3, input_shape=(4,), kernel_initializer=start),
            tf.keras.layers.Dense(1, kernel_initializer=start),
        ]
    )


def callbacks() -> list[Any]:
    return [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.05 * hvd.size(), warmup_epochs=2),
    ]


def assert_learnt(model: Any, losses: list[float]) -> None:
    assert losses[-1] < losses[0], losses
    for theirs in hvd_np.allgather_object((model.get_weights(), losses)):
        for one, other in zip(model.get_weights(), theirs[0], strict=True):
            np.testing.assert_array_equal(one, other)
        assert theirs[1] == losses


def check_set_session() -> None:
    model = session_with_a_model()
    optimizer = hvd.DistributedOptimizer(tf1.keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.5))
    model.compile(loss="mse", optimizer=optimizer)
    x, y = (np.concatenate(parts) for parts in zip(*(next(batches()) for _ in range(STEPS)), strict=True))
    history = model.fit(x, y, batch_size=BATCH, epochs=4, callbacks=callbacks(), verbose=0)
    assert_learnt(model, history.history["loss"])


def check_fit_generator() -> None:
    model = session_with_a_model()
    optimizer = hvd.DistributedOptimizer(tf1.keras.optimizers.Adam(0.05 * hvd.size()))
    model.compile(loss="mse", optimizer=optimizer)
    history = model.fit_generator(
        batches(), steps_per_epoch=STEPS, epochs=4, callbacks=callbacks(), verbose=0, workers=1
    )
    assert_learnt(model, history.history["loss"])


def check_several_passes_need_eager_execution() -> None:
    model = session_with_a_model()
    optimizer = hvd.DistributedOptimizer(
        tf1.keras.optimizers.SGD(0.05), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    model.compile(loss="mse", optimizer=optimizer)
    with raises(ValueError, "leave out tf.compat.v1.disable_eager_execution()"):
        model.fit_generator(batches(), steps_per_epoch=STEPS, verbose=0)


def check_values() -> None:
    assert float(hvd.allreduce(float(hvd.rank()), name="value")) == (hvd.size() - 1) / 2
    np.testing.assert_array_equal(hvd.allgather(np.array([hvd.rank()])), np.arange(hvd.size()))


def check_broadcast_global_variables() -> None:
    model = session_with_a_model()
    model.set_weights([values + hvd.rank() for values in model.get_weights()])
    hvd.broadcast_global_variables(0)
    for theirs in hvd_np.allgather_object(model.get_weights()):
        for one, other in zip(model.get_weights(), theirs, strict=True):
            np.testing.assert_array_equal(one, other)
