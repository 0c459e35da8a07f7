"""A small training whose steps are compiled functions; in some of them nothing of it is Python's."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

STEPS = 24
FRAMEWORK, BY_HAND, LATE = sys.argv[1], "by-hand" in sys.argv[2:], "late" in sys.argv[2:]


def load(rank: int) -> None:
    """Rank 1 has to wait for its data."""
    if LATE and rank == 1:
        time.sleep(0.06)


def check_metrics(metrics: dict[str, Any], rank: int) -> None:
    assert metrics["steps_total"] == STEPS, metrics["steps_total"]
    if LATE:  # the first step apart
        share = metrics["blocked_seconds_total"] / (0.06 * STEPS)
        assert 0.8 < share < 2 if rank == 0 else share < 0.4, (rank, share)


def in_tensorflow() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    weights = [tf.Variable(tf.ones([4])), tf.Variable(tf.zeros([2]))]

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights[0] * x) ** 2 + tf.reduce_sum(weights[1] ** 2)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(0.001 * gradient)

    for _ in range(STEPS):
        load(hvd.rank())
        step(tf.ones([4]))
        if BY_HAND:
            hvd.mark_step()
    check_metrics(hvd.metrics(), hvd.rank())
    hvd.shutdown()


def in_keras() -> None:
    import keras
    import numpy as np

    import horovod.keras as hvd

    hvd.init()
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    every = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda *_, **__: load(hvd.rank()))
    first = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    x, y = np.ones((STEPS, 4), np.float32), np.ones((STEPS, 1), np.float32)
    model.fit(x, y, batch_size=1, verbose=0, callbacks=[every, first])
    check_metrics(hvd.metrics(), hvd.rank())
    hvd.shutdown()


def in_jax() -> None:
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    hvd.init()
    step = jax.jit(hvd.grad(lambda weights, x: jnp.sum(weights["a"] * x) ** 2 + jnp.sum(weights["b"] ** 2)))
    weights = {"a": jnp.ones(4), "b": jnp.zeros(2)}
    for _ in range(STEPS):
        load(hvd.rank())
        weights = jax.block_until_ready(step(weights, jnp.ones(4) * 0.01))
        if BY_HAND:
            hvd.mark_step()
    check_metrics(hvd.metrics(), hvd.rank())
    hvd.shutdown()


{"tensorflow": in_tensorflow, "keras": in_keras, "jax": in_jax}[FRAMEWORK]()
