"""Functions that XLA compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from util_expect import raises

import horovod.tensorflow as hvd


def compiled(function: Any) -> Any:
    return tf.function(function, jit_compile=True)


def check_compiled_collectives() -> None:
    n, r = hvd.size(), hvd.rank()
    for dtype in (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64):
        x = tf.cast(tf.fill([3, 2], r + 1), dtype)
        result = compiled(lambda x: hvd.allreduce(x * 1, op=hvd.Sum))(x)
        np.testing.assert_array_equal(tf.cast(result, tf.float32), np.full((3, 2), n * (n + 1) / 2))
    results = compiled(lambda x: hvd.grouped_allreduce([x, tf.constant([2]), x[:0]], op=hvd.Sum))(
        tf.ones([4])
    )
    assert results[0].numpy().tolist() == [n] * 4 and results[1].numpy() == 2 * n and results[2].shape == (0,)
    assert compiled(lambda x: hvd.broadcast(x, 1))(tf.fill([2], r)).numpy().tolist() == [1, 1]
    assert compiled(lambda x: hvd.allreduce(x))(tf.constant(float(r))).numpy() == (n - 1) / 2

    @compiled
    def many(x: Any) -> Any:
        """Calls that do not depend on each other: all ranks must make them in the same order."""
        return [hvd.allreduce(x * float(i), op=hvd.Sum) for i in range(20)]

    for _ in range(20):
        for i, result in enumerate(many(tf.ones([5]))):
            assert result.numpy().tolist() == [float(i * n)] * 5


def check_compiled_gradients() -> None:
    n, r = hvd.size(), hvd.rank()

    def through(x: Any, function: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x)) * (r + 1.0)
        return tape.gradient(loss, x)

    average = compiled(lambda x: through(x, hvd.allreduce))(tf.ones([2]))
    np.testing.assert_allclose(average, [(n + 1) / 2] * 2)
    root = compiled(lambda x: through(x, lambda x: hvd.broadcast(x, 1)))(tf.ones([2]))
    np.testing.assert_allclose(root, [(n + 1) / 2 if r == 1 else 0.0] * 2)

    weights = [tf.Variable(tf.ones([3, 3])), tf.Variable(tf.zeros([3]))]

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights[0] + weights[1]) ** 2)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(0.1 * gradient)
        return gradients

    x = tf.random.stateless_normal([4, 3], seed=[r, 1])
    expected = [gradient.numpy() for gradient in step(x)]
    for weight, start in zip(weights, (tf.ones([3, 3]), tf.zeros([3])), strict=True):
        weight.assign(start)
    for actual, wanted in zip(compiled(step)(x), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5)


def check_compiled_errors() -> None:
    first = hvd.rank() == 0
    for function in (hvd.allgather, hvd.reducescatter, hvd.alltoall):
        with raises(NotImplementedError, "jit_compile"):
            compiled(lambda x, function=function: function(x))(tf.ones([4]))
    with raises(ValueError, "shapes"):
        tf.function(hvd.allreduce, jit_compile=True, input_signature=[tf.TensorSpec([None])])(tf.ones([4]))
    with raises(tf.errors.OpError, "HorovodAllreduce"):
        compiled(lambda x: hvd.allreduce(x, name="wrong"))(tf.ones([2 + first]))
    assert compiled(lambda x: hvd.allreduce(x, op=hvd.Sum))(tf.ones([])).numpy() == hvd.size()
