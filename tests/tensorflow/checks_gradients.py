"""Gradients through collectives, eagerly and in a tf.function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd


def gradients(function: Callable[[Any], Any], x: Any, weights: Any) -> list[np.ndarray[Any, Any]]:
    """d(sum(weights * function(x)))/dx."""

    def compute(x: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x) * weights)
        return tape.gradient(loss, x)

    return [compute(x, weights).numpy(), tf.function(compute)(x, weights).numpy()]


def expect(function: Callable[[Any], Any], x: Any, weights: Any, expected: Any) -> None:
    for actual in gradients(function, x, weights):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def check_allreduce_gradient() -> None:
    n, r = hvd.size(), hvd.rank()
    x, weights = tf.ones([3]), tf.fill([3], float(r + 1))
    total = n * (n + 1) / 2
    expect(lambda x: hvd.allreduce(x, op=hvd.Sum), x, weights, [total] * 3)
    expect(lambda x: hvd.allreduce(x, op=hvd.Average), x, weights, [total / n] * 3)
    expect(
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25),
        x,
        weights,
        [total / 2] * 3,
    )
    expect(lambda x: hvd.grouped_allreduce([x, x * 3.0], op=hvd.Sum)[1], x, weights, [3 * total] * 3)


def check_allgather_gradient() -> None:
    n, r = hvd.size(), hvd.rank()
    rows = n * (n + 1) // 2
    x = tf.ones([r + 1, 2])
    weights = tf.range(float(rows))[:, tf.newaxis] * tf.ones([1, 2]) * (r + 1.0)
    start = r * (r + 1) // 2
    mine = np.arange(start, start + r + 1)[:, None] * np.ones((1, 2)) * (n + 1) / 2
    expect(hvd.allgather, x, weights, mine)
    expect(lambda x: hvd.grouped_allgather([tf.zeros([r, 3]), x])[1], x, weights, mine)


def check_broadcast_gradient() -> None:
    n, r = hvd.size(), hvd.rank()
    expected = [(n + 1) / 2] * 2 if r == 1 else [0.0, 0.0]
    expect(lambda x: hvd.broadcast(x, 1), tf.ones([2]), tf.fill([2], r + 1.0), expected)


def check_alltoall_gradient() -> None:
    n, r = hvd.size(), hvd.rank()
    expect(hvd.alltoall, tf.ones([n]), tf.fill([n], r + 1.0), np.arange(n) + 1.0)
    # The last row goes nowhere.
    expect(
        lambda x: hvd.alltoall(x, [1] * n)[0],
        tf.ones([n + 1, 2]),
        tf.fill([n, 2], r + 1.0),
        [[i + 1.0] * 2 for i in range(n)] + [[0.0, 0.0]],
    )


def check_reducescatter_gradient() -> None:
    n, r = hvd.size(), hvd.rank()
    shares = [2] + [1] * (n - 1)
    weights = tf.fill([shares[r]], r + 1.0)
    gathered = np.repeat(np.arange(n) + 1.0, shares)
    expect(hvd.reducescatter, tf.ones([n + 1]), weights, gathered)
    expect(lambda x: hvd.reducescatter(x, op=hvd.Sum), tf.ones([n + 1]), weights, gathered * n)
    expect(lambda x: hvd.grouped_reducescatter([x])[0], tf.ones([n + 1]), weights, gathered)
