"""Mistakes: each has its own type of error, on every rank that it concerns, and the engine goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from util_expect import raises

import horovod.numpy as arrays
import horovod.tensorflow as hvd

PRECONDITION = tf.errors.FailedPreconditionError
INVALID = tf.errors.InvalidArgumentError


def goes_on() -> None:
    assert hvd.allreduce(tf.ones([1]), op=hvd.Sum)[0] == hvd.size()


def check_ranks_disagree() -> None:
    first = hvd.rank() == 0
    for wrong in (
        lambda: hvd.allreduce(tf.ones([2 if first else 3])),
        lambda: hvd.allreduce(tf.ones([2], tf.float32 if first else tf.float64)),
        lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum if first else hvd.Max),
        lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum, prescale_factor=1.0 if first else 2.0),
        lambda: hvd.broadcast(tf.ones([2]), 0 if first else 1),
        lambda: hvd.allgather(tf.ones([2, 2 if first else 3])),
        lambda: (
            hvd.allreduce(tf.ones([2]), name="kind") if first else hvd.allgather(tf.ones([2]), name="kind")
        ),
        lambda: hvd.allgather(tf.constant(1.0)),
        lambda: hvd.reducescatter(tf.constant(1.0)),
    ):
        with raises(PRECONDITION, "Horovod"):
            wrong()
    with raises(PRECONDITION, "HorovodAllreduce"):
        tf.function(lambda: hvd.allreduce(tf.ones([2 if first else 3]) * 1.0, name="in_function"))()
    with raises(PRECONDITION):
        tf.function(lambda: hvd.allgather(tf.constant(1.0), name="scalar"))()
    goes_on()


def check_local_mistakes() -> None:
    n = hvd.size()
    x = tf.ones([n + 1, 2])
    for wrong in (
        lambda: hvd.alltoall(x, [1] * (n + 1)),
        lambda: hvd.alltoall(x, [n] * n),
        lambda: hvd.alltoall(x, [-1] * n),
        lambda: hvd.alltoall(x, []),
        lambda: hvd.alltoall(x, [[1] * n]),
        lambda: hvd.alltoall(x),
        lambda: hvd.broadcast(x, n),
        lambda: hvd.size_op(77),
        lambda: hvd.ops.library.horovod_allreduce(x, reduce_op=hvd.Sum, process_set_id=77),
    ):
        with raises(INVALID, "Horovod"):
            wrong()
    goes_on()


def check_duplicate_names() -> None:
    """One is pending until the last rank comes; on the others a second one of that name is refused."""
    array = np.ones(2, np.float32)
    if hvd.rank() > 0:
        handle = arrays.allreduce_async(array, name="same", op=hvd.Sum)
        with raises(INVALID, "still pending", "HorovodAllreduce"):
            hvd.allreduce(tf.ones([2]), name="allreduce.same", op=hvd.Sum)
    arrays.barrier()
    if hvd.rank() == 0:
        handle = arrays.allreduce_async(array, name="same", op=hvd.Sum)
    assert arrays.synchronize(handle)[0] == hvd.size()
    goes_on()


def check_not_allowed() -> None:
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        with raises(tf.errors.AbortedError, "HorovodReducescatter"):
            hvd.reducescatter(tf.ones([4]), op=op)
    goes_on()


def check_dtypes() -> None:
    for wrong in (tf.constant(["text"]), tf.constant([1], tf.uint32)):
        with raises((TypeError, INVALID)):  # type: ignore[arg-type]
            hvd.allreduce(wrong)
    with raises((TypeError, INVALID)):  # type: ignore[arg-type]
        hvd.broadcast(tf.constant(["text"]), 0)
    with raises((TypeError, ValueError, INVALID)):  # type: ignore[arg-type]
        hvd.alltoall(tf.ones([hvd.size()]), tf.ones([hvd.size()], tf.int64))
    goes_on()


def check_adasum_needs_a_power_of_two() -> None:
    if hvd.check_num_rank_power_of_2(hvd.size()):
        same = hvd.allreduce(tf.constant([3.0, 4.0]), op=hvd.Adasum)
        assert same.numpy().tolist() == [3.0, 4.0]
    else:
        with raises(NotImplementedError, "power of two"):
            hvd.allreduce(tf.ones([2]), op=hvd.Adasum)
        with raises(NotImplementedError, "power of two"):
            hvd.grouped_allreduce([tf.ones([2])], op=hvd.Adasum)


def check_not_initialized() -> None:
    """And a graph that was made before works after the next init()."""
    traced = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))
    traced(tf.ones([1]))
    variable = tf.Variable([1.0])

    def gradient() -> Any:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = variable * 2.0
        return tape.gradient(loss, [variable])

    hvd.barrier()
    hvd.shutdown()
    for wrong in (
        lambda: hvd.allreduce(tf.ones([1])),
        lambda: traced(tf.ones([1])),
        hvd.rank_op,
        hvd.size_op,
        hvd.join,
        gradient,
    ):
        with raises(PRECONDITION, "hvd.init()"):
            wrong()
    assert hvd.process_set_included_op() == -1
    with raises(ValueError, "hvd.init()"):
        hvd.rank()
    hvd.init()
    assert traced(tf.ones([1]))[0] == hvd.size()
    goes_on()


def check_shutdown_elsewhere() -> None:
    """What the others have pending then fails with the name of the op in the text."""
    if hvd.rank() == 0:
        hvd.shutdown()
    else:
        with raises(tf.errors.UnknownError, "HorovodAllreduce"):
            hvd.allreduce(tf.ones([2]), name="never complete")
        with raises(tf.errors.UnknownError, "HorovodAllgather"):
            hvd.allgather(tf.ones([2]))
        hvd.shutdown()
    hvd.init()
    goes_on()
