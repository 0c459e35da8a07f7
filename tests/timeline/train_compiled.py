"""A small training whose steps are compiled functions; in some of them nothing of it is Python's."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

STEPS = 24
FRAMEWORK, BY_HAND = sys.argv[1], "by-hand" in sys.argv[2:]


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
        step(tf.ones([4]))
        if BY_HAND:
            hvd.mark_step()
    assert hvd.metrics()["steps_total"] == STEPS, hvd.metrics()["steps_total"]
    hvd.shutdown()


def in_jax() -> None:
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    hvd.init()
    step = jax.jit(hvd.grad(lambda weights, x: jnp.sum(weights["a"] * x) ** 2 + jnp.sum(weights["b"] ** 2)))
    weights = {"a": jnp.ones(4), "b": jnp.zeros(2)}
    for _ in range(STEPS):
        weights = jax.block_until_ready(step(weights, jnp.ones(4) * 0.01))
        if BY_HAND:
            hvd.mark_step()
    assert hvd.metrics()["steps_total"] == STEPS, hvd.metrics()["steps_total"]
    hvd.shutdown()


in_tensorflow() if FRAMEWORK == "tensorflow" else in_jax()
