"""Every collective, eagerly and in a tf.function. Any number of ranks from two, dynamic process sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from util_expect import cases, raises

import horovod.tensorflow as hvd

REDUCIBLE = ["uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
MOVABLE = [*REDUCIBLE, "uint16", "int16", "uint32", "uint64", "bool"]


def both(function: Callable[..., Any], *args: Any) -> list[Any]:
    """The results of a function called eagerly, as a tf.function, and as one that knows no shapes."""
    unknown = [tf.TensorSpec(None, tensor.dtype) for tensor in args]
    return [
        function(*args),
        tf.function(function)(*args),
        tf.function(function, input_signature=unknown)(*args),
    ]


def same(actual: Any, expected: Any) -> None:
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    np.testing.assert_array_equal(actual.numpy(), expected.numpy())


@cases(*REDUCIBLE)
def check_allreduce(dtype: str) -> None:
    n, r = hvd.size(), hvd.rank()
    for shape in ([], [0], [3], [2, 5, 1]):
        tensor = tf.cast(tf.fill(shape, r + 1), dtype)
        expected = tf.cast(tf.fill(shape, n * (n + 1) // 2), dtype)
        for result in both(lambda x: hvd.allreduce(x, op=hvd.Sum), tensor):
            same(result, expected)


def check_allreduce_operations() -> None:
    n, r = hvd.size(), hvd.rank()
    x = tf.constant([-5.0, r, 3.0])
    for op, expected in (
        (hvd.Average, [-5.0, (n - 1) / 2, 3.0]),
        (hvd.Min, [-5.0, 0.0, 3.0]),
        (hvd.Max, [-5.0, n - 1.0, 3.0]),
        (hvd.Product, [(-5.0) ** n, 0.0, 3.0**n]),
    ):
        for result in both(lambda x, op=op: hvd.allreduce(x, op=op), x):
            np.testing.assert_allclose(result, expected)
    same(hvd.allreduce(tf.constant([-5]) // 1), tf.constant([-5]))
    same(hvd.allreduce(tf.constant([-5 if r == 0 else 0])), tf.constant([int(-5 / n)]))
    for result in both(
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), tf.ones([4])
    ):
        same(result, tf.fill([4], 1.5 * n))


def check_allreduce_leaves_its_input() -> None:
    x = tf.constant([1.0, 2.0])
    v = tf.Variable([1.0, 2.0])
    for _ in range(3):
        both(lambda x: hvd.allreduce(x, op=hvd.Sum), x)
        hvd.allreduce(v, op=hvd.Sum)
        tf.function(lambda: hvd.allreduce(v, op=hvd.Sum))()
    same(x, tf.constant([1.0, 2.0]))
    same(v.read_value(), tf.constant([1.0, 2.0]))


def check_compression() -> None:
    x = tf.constant([1.0, 2.5]) * (hvd.rank() + 1)
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        for result in both(lambda x, c=compression: hvd.allreduce(x, compression=c, op=hvd.Sum), x):
            same(result, tf.constant([1.0, 2.5]) * (hvd.size() * (hvd.size() + 1) // 2))
        same(hvd.allreduce(tf.constant([7]), compression=compression), tf.constant([7]))


def check_grouped_allreduce() -> None:
    assert hvd.grouped_allreduce([]) == []
    n = hvd.size()
    tensors = [tf.fill([i], float(i)) for i in range(5)] + [tf.constant([3]), tf.constant(2.0, tf.float16)]
    for results in both(lambda *xs: hvd.grouped_allreduce(list(xs), op=hvd.Sum), *tensors):
        assert len(results) == 7
        for result, tensor in zip(results, tensors, strict=True):
            same(result, tensor * n)
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([hvd.rank()]), tf.constant([n, 2]))
    dense, sparse = hvd.grouped_allreduce([tf.ones([2]), slices], op=hvd.Sum)
    same(dense, tf.fill([2], float(n)))
    same(tf.convert_to_tensor(sparse), tf.ones([n, 2]))


def check_indexed_slices() -> None:
    n, r = hvd.size(), hvd.rank()

    def reduce(values: Any, indices: Any) -> Any:
        result = hvd.allreduce(tf.IndexedSlices(values, indices, tf.constant([n, 2])))
        assert isinstance(result, tf.IndexedSlices)
        return result.values, result.indices, tf.convert_to_tensor(result)

    rows = tf.fill([r + 1, 2], float(r + 1))
    for values, indices, dense in both(reduce, rows, tf.range(r + 1)):
        assert values.shape == (n * (n + 1) // 2, 2) and indices.shape == (n * (n + 1) // 2,)
        expected = [[sum(k + 1 for k in range(n) if k >= row) / n] * 2 for row in range(n)]
        np.testing.assert_allclose(dense, expected)
    for dtype, floating in (
        (tf.uint8, tf.float32),
        (tf.int16, tf.float32),
        (tf.int32, tf.float64),
        (tf.int64, tf.float64),
    ):
        ones = tf.ones([1, 2], dtype)  # on all ranks in the same row: their average is 1
        for _, _, dense in both(reduce, ones, tf.constant([0])):
            same(dense[0], tf.ones([2], floating))
        slices = tf.IndexedSlices(ones, tf.constant([0]), tf.constant([n, 2]))
        whole, sparse = hvd.grouped_allreduce([tf.cast(tf.fill([2], 2 * r), dtype), slices])
        same(whole, tf.cast(tf.fill([2], n - 1), dtype))
        same(tf.convert_to_tensor(sparse)[0], tf.ones([2], floating))
    slices = tf.IndexedSlices(rows, tf.range(r + 1))
    with raises(NotImplementedError, "Sum"):
        hvd.allreduce(slices, op=hvd.Max)
    with raises(NotImplementedError):
        hvd.allreduce(slices, op=hvd.Adasum)
    with raises(NotImplementedError, "prescale"):
        hvd.allreduce(slices, prescale_factor=2.0)


@cases(*MOVABLE)
def check_allgather(dtype: str) -> None:
    n, r = hvd.size(), hvd.rank()
    tensor = tf.cast(tf.fill([r, 2], r), dtype)
    rows = tf.repeat(tf.range(n), tf.range(n))[:, tf.newaxis]
    for result in both(hvd.allgather, tensor):
        same(result, tf.cast(rows * tf.ones([1, 2], tf.int32), dtype))


def check_grouped_allgather_and_shapes() -> None:
    n, r = hvd.size(), hvd.rank()
    for results in both(lambda a, b: hvd.grouped_allgather([a, b]), tf.fill([2], r), tf.fill([r, 3], 1.0)):
        same(results[0], tf.repeat(tf.range(n), 2))
        same(results[1], tf.ones([n * (n - 1) // 2, 3]))
    assert hvd.grouped_allgather([]) == []
    same(hvd.allgather(tf.zeros([0, 3])), tf.zeros([0, 3]))

    @tf.function(input_signature=[tf.TensorSpec([4, None, 2])])
    def shape(x: Any) -> Any:
        assert hvd.allgather(x).shape.as_list() == [None, None, 2]
        assert hvd.reducescatter(x).shape.as_list() == [None, None, 2]
        assert hvd.broadcast(x, 0).shape.as_list() == [4, None, 2]
        assert hvd.alltoall(x)[0].shape.as_list()[1:] == [2]
        return x

    shape.get_concrete_function()


@cases(*MOVABLE)
def check_broadcast(dtype: str) -> None:
    for root in range(hvd.size()):
        tensor = tf.cast(tf.fill([3], hvd.rank() + 1), dtype)
        for result in both(lambda x, root=root: hvd.broadcast(x, root), tensor):
            same(result, tf.cast(tf.fill([3], root + 1), dtype))


@cases(*MOVABLE)
def check_alltoall(dtype: str) -> None:
    n, r = hvd.size(), hvd.rank()
    tensor = tf.cast(tf.fill([2 * n], r), dtype)
    for result in both(hvd.alltoall, tensor):
        same(result, tf.cast(tf.repeat(tf.range(n), 2), dtype))


def check_alltoall_with_splits() -> None:
    n, r = hvd.size(), hvd.rank()
    splits = tf.range(n)  # rank i gets i rows from each; one row is left over
    tensor = tf.fill([n * (n - 1) // 2 + 1, 2], float(r))
    for output, received in both(hvd.alltoall, tensor, splits):
        same(received, tf.fill([n], r))
        same(output, tf.repeat(tf.range(float(n)), r)[:, tf.newaxis] * tf.ones([1, 2]))
    output, received = hvd.alltoall(tensor, list(range(n)))
    same(received, tf.fill([n], r))


def check_reducescatter() -> None:
    n, r = hvd.size(), hvd.rank()
    rows = 2 * n + 1  # the first rank gets one more
    share = slice(0, 3) if r == 0 else slice(2 * r + 1, 2 * r + 3)
    full = tf.range(float(rows))[:, tf.newaxis] * tf.ones([1, 2])
    for result in both(lambda x: hvd.reducescatter(x, op=hvd.Sum), full):
        same(result, full[share] * n)
    same(hvd.reducescatter(full), full[share])
    same(hvd.reducescatter(full, compression=hvd.Compression.fp16), full[share])
    same(hvd.reducescatter(full, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5), full[share] * n)
    for results in both(
        lambda a, b: hvd.grouped_reducescatter([a, b], op=hvd.Sum), full, tf.range(rows, dtype=tf.int64)
    ):
        same(results[0], full[share] * n)
        same(results[1], tf.range(rows, dtype=tf.int64)[share] * n)
    assert hvd.grouped_reducescatter([]) == []


def check_names() -> None:
    x = tf.ones([2])
    hvd.allreduce(x, name="a name: with anything, /in it")
    tf.function(lambda x: hvd.allreduce(x, name="a name: with anything, /in it"))(x)
    # Ranks may come in any order.
    order = [1, 0] if hvd.rank() == 0 else [0, 1]

    @tf.function
    def disordered(x: Any) -> Any:
        results = {}
        for i in order:
            with tf.control_dependencies([]):
                results[i] = hvd.allreduce(x * float(i + 1), name=f"disordered_{i}", op=hvd.Sum)
        return results[0], results[1]

    one, two = disordered(x)
    same(one, x * hvd.size())
    same(two, 2 * x * hvd.size())
    scope = f"scope_of_rank_{hvd.rank()}"

    @tf.function
    def scoped(x: Any) -> Any:
        with tf.name_scope(scope):
            return hvd.allreduce(x, name="inner", ignore_name_scope=True)

    same(scoped(x), x)


@cases("function", "compiled")
def check_result_that_one_rank_needs(mode: str) -> None:
    """The others take part all the same."""

    @tf.function(jit_compile=mode == "compiled")
    def step(x: Any) -> Any:
        total = hvd.allreduce(x, name="needed_by_rank_0", op=hvd.Sum)
        return total if hvd.rank() == 0 else x

    x = tf.ones([2])
    same(step(x), x * hvd.size() if hvd.rank() == 0 else x)


def check_one_function_called_twice() -> None:
    inner = tf.function(lambda x: hvd.allreduce(x * 2.0, op=hvd.Sum))
    outer = tf.function(lambda x: (inner(x), inner(x + 1.0)))
    first, second = outer(tf.ones([2]))
    same(first, tf.fill([2], 2.0 * hvd.size()))
    same(second, tf.fill([2], 4.0 * hvd.size()))


def check_control_flow() -> None:
    @tf.function
    def loop(x: Any) -> Any:
        for _ in tf.range(5):
            x = hvd.allreduce(x) + 1.0
        return x

    same(loop(tf.constant(1.0)), tf.constant(6.0))

    @tf.function
    def branch(x: Any) -> Any:
        if tf.reduce_sum(x) > 0.0:
            return hvd.allreduce(x, op=hvd.Sum)
        return x

    same(branch(tf.ones([2])), tf.ones([2]) * hvd.size())


def check_constants_and_twins() -> None:
    """A constant must not be reduced beforehand, nor equal operations merged: on one rank it would hang."""
    rank = hvd.rank()

    @tf.function
    def constant() -> Any:
        x = tf.constant([1.0, 2.0]) if rank == 0 else tf.random.uniform([2], 1.0, 1.0)
        return hvd.allreduce(x, op=hvd.Sum, name="constant_here") + 0.0

    for _ in range(3):
        constant()

    @tf.function
    def twins(x: Any) -> Any:
        other = x if rank == 0 else x * 1.0
        return hvd.allreduce(x, op=hvd.Sum, name="twin_a") + hvd.allreduce(other, op=hvd.Sum, name="twin_b")

    same(twins(tf.ones([2])), tf.fill([2], 2.0 * hvd.size()))


def check_process_sets() -> None:
    n, r = hvd.size(), hvd.rank()
    assert hvd.global_process_set.size() == n
    even = hvd.add_process_set(list(range(0, n, 2)))
    number = even.process_set_id
    for ask in (lambda: hvd.process_set_included_op(number), hvd.process_set_included_op):
        assert tf.function(ask)() == ask() == int(r % 2 == 0 or ask is hvd.process_set_included_op)
    assert hvd.size_op(number) == len(even.ranks)
    if r % 2 == 0:
        members = float(len(even.ranks))
        for result in both(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=even), tf.ones([2])):
            same(result, tf.fill([2], members))
        same(hvd.broadcast(tf.constant([r]), even.ranks[-1], process_set=even), tf.constant([even.ranks[-1]]))
        same(hvd.allgather(tf.constant([r]), process_set=even), tf.constant(even.ranks))
        same(hvd.reducescatter(tf.zeros([len(even.ranks)]), process_set=even), tf.zeros([1]))
    else:
        with raises(tf.errors.InvalidArgumentError, "not in process set"):
            hvd.allreduce(tf.ones([2]), process_set=even)
    assert hvd.remove_process_set(even)
    with raises(tf.errors.InvalidArgumentError, "not registered"):
        hvd.allreduce(tf.ones([2]), process_set=even)
    assert hvd.process_set_included_op(number) == -3


def check_questions() -> None:
    n, r = hvd.size(), hvd.rank()

    def ask() -> list[Any]:
        return [hvd.size_op(), hvd.rank_op(), hvd.local_size_op(), hvd.local_rank_op(name="mine")]

    for answers in (ask(), tf.function(ask)()):
        assert [int(answer) for answer in answers] == [n, r, hvd.local_size(), hvd.local_rank()]
        assert all(answer.dtype == tf.int32 and answer.shape == () for answer in answers)
    assert hvd.is_homogeneous() and hvd.mpi_ops._basics.rank() == r and hvd._executing_eagerly()
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks()[0] == list(range(n))


def check_join_and_barrier() -> None:
    hvd.barrier()
    n, r = hvd.size(), hvd.rank()
    for i in range(r):
        result = hvd.allreduce(tf.ones([2]), name=f"uneven.{i}")
        same(result, tf.fill([2], tf.cast((n - 1 - i) / n, tf.float32)))
    last = hvd.join()
    assert last.dtype == tf.int32 and int(last) == n - 1
    assert int(tf.function(hvd.join)()) in range(n)

    @tf.function
    def fence(x: Any) -> Any:
        hvd.barrier()
        return x

    fence(tf.ones([1]))


def check_objects() -> None:
    r = hvd.rank()
    assert hvd.broadcast_object({"rank": r}, 1) == {"rank": 1}
    assert hvd.broadcast_object(r if r else "other type", 0, name="named") == "other type"
    assert hvd.broadcast_object_fn(root_rank=1)([r]) == [1]
    assert hvd.allgather_object("x" * r) == ["x" * i for i in range(hvd.size())]


def check_broadcast_variables() -> None:
    r = hvd.rank()
    variables = [tf.Variable(tf.fill([i], float(r))) for i in range(4)]
    variables += [tf.Variable(r), tf.Variable([r > 0])]
    hvd.broadcast_variables(variables, 1)
    assert all(bool(tf.reduce_all(tf.cast(v, tf.float32) == 1.0)) for v in variables)
    for v in variables[:4]:
        v.assign(tf.zeros_like(v) + r)

    @tf.function
    def from_first() -> None:
        hvd.broadcast_variables(variables[:4], root_rank=0, inplace=True)

    from_first()
    assert all(bool(tf.reduce_all(v == 0.0)) for v in variables[:4])
    hvd.broadcast_variables([], root_rank=0)
    values = hvd.broadcast_([tf.Variable([float(r)]), tf.Variable([r])], 1)
    assert [value.numpy().tolist() for value in values] == [[1.0], [1]]
    with raises(RuntimeError, "broadcast_variables"):
        hvd.broadcast_global_variables(0)
