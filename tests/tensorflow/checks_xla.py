"""Functions that XLA compiles."""

from __future__ import annotations

from typing import Any
from unittest import mock

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


def check_compiled_gradients_of_unknown_shape() -> None:
    """Those of an embedding have as many rows as the batch; others a shape that depends on it."""
    n, r = hvd.size(), hvd.rank()
    table, scale = tf.Variable(tf.ones([n + 1, 2])), tf.Variable(tf.ones([1, 2]))
    anything = tf.TensorSpec([None], tf.int32), tf.TensorSpec(None, tf.float32)

    def step(words: Any, factors: Any, **options: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, words) * scale * factors)
        return hvd.DistributedGradientTape(tape, **options).gradient(loss, [table, scale])

    words, factors = tf.constant([n, *[r] * (r + 1)]), tf.fill([r + 2, 1], r + 1.0)
    for options in (
        {},
        {"groups": 1},
        {"gradient_predivide_factor": 2.0},
        {"compression": hvd.Compression.fp16},
    ):
        expected = [tf.convert_to_tensor(gradient) for gradient in step(words, factors)]
        run = tf.function(
            lambda words, factors, options=options: step(words, factors, **options),
            jit_compile=True,
            input_signature=anything,
        )
        for actual, wanted in zip(run(words, factors), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-3)


def gradient_of(function: Any) -> Any:
    """d(sum(weights * function(x)))/dx as a function of x and the weights."""

    def compute(x: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x) * weights)
        return tape.gradient(loss, x)

    return compute


def check_compiled_gathers_and_scatters() -> None:
    """The same values and gradients as without XLA, whose own checks are in other files."""
    n, r = hvd.size(), hvd.rank()
    x = tf.range(2.0 * n * 3)
    x = tf.reshape(x, [2 * n, 3]) + 100.0 * r
    uneven = tf.range(2.0 * n + 1) * (r + 1)
    for function, tensor in (
        (hvd.allgather, x),
        (hvd.alltoall, x),
        (lambda x: hvd.alltoall(x, [1] * n)[0], x),
        (hvd.reducescatter, x),
        (lambda x: hvd.reducescatter(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), uneven),
        (lambda x: hvd.grouped_allreduce([x, x * 2.0], op=hvd.Sum)[1], x),
        (lambda x: hvd.grouped_allgather([x[:1], x])[1], x),
        (lambda x: hvd.grouped_reducescatter([x[1:], x])[1], uneven),
        (lambda x: hvd.reducescatter(x[:1]), x),  # nothing for the others
    ):
        plain = function(tensor)
        result = compiled(lambda x, function=function: function(x * 1.0))(tensor)
        np.testing.assert_array_equal(result, plain)
        weights = tf.cast(tf.reshape(tf.range(tf.size(plain)), tf.shape(plain)), tf.float32) + r
        compute = gradient_of(function)
        np.testing.assert_allclose(compiled(compute)(tensor, weights), compute(tensor, weights), rtol=1e-6)
    output, received = compiled(lambda x: hvd.alltoall(x, tf.constant([2] * n)))(x)
    np.testing.assert_array_equal(output, hvd.alltoall(x))
    assert received.dtype == tf.int32 and received.numpy().tolist() == [2] * n
    assert compiled(lambda x: hvd.allgather(x > 1))(tf.range(3)).numpy().tolist() == [False, False, True] * n
    numbers = tf.fill([n], tf.cast(r, tf.uint32))
    assert compiled(hvd.alltoall)(numbers).numpy().tolist() == list(range(n))


def check_compiled_shapes_that_depend_on_ranks() -> None:
    n, r = hvd.size(), hvd.rank()
    for wrong, text in (
        (lambda x: hvd.alltoall(x, [0] * (n - 1) + [1]), "splits"),
        (lambda x: hvd.alltoall(x, tf.cast(x[:n], tf.int32)), "splits"),
        (lambda x: hvd.join(), "hvd.join()"),
        (lambda x: hvd.barrier(), "hvd.barrier()"),
        (lambda x: hvd.rank_op(), "hvd.rank_op()"),
    ):
        with raises(NotImplementedError, "jit_compile", text):
            compiled(wrong)(tf.ones([2 * n]))
    for wrong, text in (
        (lambda x: hvd.alltoall(x[1:]), "can't be divided"),
        (lambda x: hvd.alltoall(x, [3] * n), "splits"),
        (lambda x: hvd.alltoall(x, [1] * (n + 1)), "splits"),
        (lambda x: hvd.allgather(x[0]), "first dimension"),
    ):
        with raises(ValueError, text):
            compiled(wrong)(tf.ones([2 * n]))
    # Seen only when it runs. All ranks come out of it; those whose result has another shape with an error.
    for function, rows, fits in (
        (hvd.allgather, r + 1, r + 1 == (n + 1) / 2),
        (hvd.alltoall, n * (r + 1), False),
    ):
        if fits:
            compiled(function)(tf.ones([rows]))
        else:
            with raises(tf.errors.OpError, "same number of rows"):
                compiled(function)(tf.ones([rows]))
    assert hvd.allreduce(1.0, op=hvd.Sum) == n


def check_compiled_process_set() -> None:
    n, r = hvd.size(), hvd.rank()
    others = hvd.add_process_set(list(range(1, n)))
    if r:
        x = tf.range(float(n)) + r
        for function in (hvd.allgather, hvd.reducescatter):
            run = compiled(lambda x, function=function: function(x, process_set=others))
            np.testing.assert_array_equal(run(x), function(x, process_set=others))
    else:
        with raises(ValueError, "not in process set"):
            compiled(lambda x: hvd.allgather(x, process_set=others))(tf.ones([2]))
    hvd.remove_process_set(others)


def check_compiled_errors() -> None:
    first = hvd.rank() == 0
    with raises(ValueError, "shapes"):
        tf.function(hvd.allreduce, jit_compile=True, input_signature=[tf.TensorSpec([None])])(tf.ones([4]))
    with raises(tf.errors.OpError, "HorovodAllreduce"):
        compiled(lambda x: hvd.allreduce(x, name="wrong"))(tf.ones([2 + first]))
    assert compiled(lambda x: hvd.allreduce(x, op=hvd.Sum))(tf.ones([])).numpy() == hvd.size()


def check_compiled_for_a_gpu() -> None:
    """The engine is called from the host's memory only. The device list is faked, as there is no GPU."""
    gpu = [tf.config.LogicalDevice("/device:GPU:0", "GPU")]
    real = tf.config.list_logical_devices
    with mock.patch.object(
        tf.config, "list_logical_devices", lambda kind: gpu if kind == "GPU" else real(kind)
    ):
        with raises(NotImplementedError, "GPU", "jit_compile=False"):
            compiled(hvd.allreduce)(tf.ones([2]))
        with tf.device("CPU:0"):
            assert compiled(lambda x: hvd.allreduce(x, op=hvd.Sum))(tf.ones([])).numpy() == hvd.size()
