"""What works after ranks have joined unevenly: eagerly, in functions, and what TensorFlow has no part in."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import horovod.numpy
import horovod.tensorflow as hvd


def every_operation() -> None:
    size, rank = hvd.size(), hvd.rank()
    assert hvd.allreduce(tf.ones(3), op=hvd.Sum).numpy().tolist() == [size] * 3
    assert hvd.grouped_allreduce([tf.ones(1)] * 2, op=hvd.Sum)[1].numpy().tolist() == [size]
    assert hvd.allgather(tf.constant([rank])).numpy().tolist() == list(range(size))
    assert hvd.broadcast(tf.constant([rank]), size - 1).numpy().tolist() == [size - 1]
    assert hvd.alltoall(tf.range(size)).numpy().tolist() == [rank] * size
    assert hvd.reducescatter(tf.range(size), op=hvd.Sum).numpy().tolist() == [size * rank]


def objects() -> None:
    size, rank = hvd.size(), hvd.rank()
    assert hvd.broadcast_object(("rank", rank), size - 1) == ("rank", size - 1)
    assert hvd.allgather_object({rank}) == [{each} for each in range(size)]


def check_eager_operations() -> None:
    for _ in range(hvd.rank() + 1):
        hvd.allreduce(tf.ones(3), op=hvd.Sum)
        hvd.grouped_allreduce([tf.ones(2), tf.ones(3)], op=hvd.Sum)
    hvd.join()
    every_operation()
    objects()


def check_functions() -> None:
    @tf.function
    def sums(tensor: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(tensor, op=hvd.Sum) + hvd.allreduce(2 * tensor, op=hvd.Sum)

    @tf.function
    def join() -> tf.Tensor:
        return hvd.join()

    for _ in range(2):
        for _ in range(hvd.rank() + 1):
            sums(tf.ones(3))
        assert 0 <= int(join()) < hvd.size()
        assert sums(tf.ones(3)).numpy().tolist() == [3 * hvd.size()] * 3
        every_operation()
        objects()


def check_gradients() -> None:
    variable = tf.Variable([1.0, 2.0])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))

    def train() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * variable)
        optimizer.apply_gradients(zip(tape.gradient(loss, [variable]), [variable], strict=True))

    for _ in range(hvd.rank() + 1):
        train()
    hvd.join()
    hvd.broadcast_variables([variable], 0)
    train()
    values = hvd.allgather(variable[None]).numpy()
    assert (values == values[0]).all(), values


def check_what_others_have_counted() -> None:
    """TensorFlow's join is everyone's."""
    for _ in range(hvd.rank() + 1):
        horovod.numpy.allreduce(np.ones(3))
    hvd.join()
    assert horovod.numpy.allreduce(np.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3


def check_objects_that_a_joined_rank_makes_fail() -> None:
    if hvd.rank() != 0:
        try:
            hvd.allgather_object(0)
        except hvd.HorovodInternalError:
            pass
        else:
            raise AssertionError("allgather_object() worked though a rank had joined")
    hvd.join()
    objects()
