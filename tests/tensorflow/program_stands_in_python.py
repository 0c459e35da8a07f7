"""Rank 1 is late in a Python function that TensorFlow calls on a thread of its own."""

import time

import tensorflow as tf

import horovod.tensorflow as hvd


def loading(x):
    time.sleep(9)  # the line
    return x


@tf.function
def step(x):
    if hvd.rank() == 1:
        x = tf.ensure_shape(tf.numpy_function(loading, [x], tf.float32), [3])
    return hvd.allreduce(x, name="awaited")


def main():
    hvd.init()
    hvd.barrier()
    step(tf.ones([3]))


main()
