"""What one_thread_setup.py has prepared is there."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow import ops


def check_older_keras() -> None:
    assert tf.keras.layers.Layer.__module__.startswith("tf_keras")
    assert tf.config.threading.get_inter_op_parallelism_threads() == 1


def check_staying_ends() -> None:
    """The one thread stays with an operation, while the other rank waits for what comes after it."""
    unit = tf.eye(200)
    early, late = ("a", "b") if hvd.rank() % 2 else ("b", "a")

    @tf.function
    def step() -> Any:
        product = unit
        for _ in range(20):
            product = unit @ product
        values = {early: unit[:2, :3], late: product[:2, :3]}
        return [ops._grouped_allreduce([values[name]], name=name, stays=True)[0] for name in "ab"]

    for _ in range(100):
        for result in step():
            assert result.numpy().tolist() == [[hvd.size(), 0, 0], [0, hvd.size(), 0]]
