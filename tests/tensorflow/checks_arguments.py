"""Arguments that other checks leave at their defaults, and errors in graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from checks_collectives import both, same
from util_expect import raises

import horovod.tensorflow as hvd

tf1 = tf.compat.v1
CPU = "/device:CPU:0"


def check_devices() -> None:
    n = hvd.size()
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([n, 2]))
    devices = {"device_dense": CPU, "device_sparse": CPU}
    for wrap in (lambda function: function, tf.function):
        same(wrap(lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum, **devices))(), tf.fill([2], float(n)))
        dense, sparse = wrap(lambda: hvd.grouped_allreduce([tf.ones([2]), slices], name="d", **devices))()
        same(dense, tf.ones([2]))
        assert isinstance(sparse, tf.IndexedSlices) and sparse.values.shape[0] == n
        same(wrap(lambda: hvd.reducescatter(tf.ones([n]), device_dense=CPU))(), tf.ones([1]))
        same(wrap(lambda: hvd.grouped_reducescatter([tf.ones([n])], device_dense=CPU)[0])(), tf.ones([1]))
    v = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        loss = v * v
    assert hvd.DistributedGradientTape(tape, CPU, CPU).gradient(loss, v).numpy() == 6.0
    optimizer = hvd.DistributedOptimizer(tf1.train.GradientDescentOptimizer(1.0), **devices)
    assert optimizer.compute_gradients(lambda: v * v, [v])[0][0].numpy() == 6.0


def check_every_collective_in_a_process_set() -> None:
    n, r = hvd.size(), hvd.rank()
    members = hvd.add_process_set([0, n - 1] if n > 2 else [1])
    others = {"process_set": members}
    if members.included():
        k, place = members.size(), members.rank()
        rows = tf.fill([2 * k], float(r))
        ranks = tf.constant([float(rank) for rank in members.ranks])
        for result in both(lambda x: hvd.grouped_allreduce([x, x], op=hvd.Sum, **others)[1], rows):
            same(result, tf.fill([2 * k], tf.reduce_sum(ranks)))
        for result in both(lambda x: hvd.grouped_allgather([x], **others)[0], rows[:1]):
            same(result, ranks)
        for result in both(lambda x: hvd.alltoall(x, **others), rows):
            same(result, tf.repeat(ranks, 2))
        for result, received in both(lambda x: hvd.alltoall(x, [1] * k, **others), rows):
            same(result, ranks)
            same(received, tf.ones([k], tf.int32))
        for result in both(lambda x: hvd.grouped_reducescatter([x], op=hvd.Sum, **others)[0], rows):
            same(result, tf.fill([2], tf.reduce_sum(ranks)))
        root = members.ranks[-1]  # a global rank
        for result in both(lambda x: hvd.broadcast(x, root, **others), rows):
            same(result, tf.fill([2 * k], float(root)))
        variables = [tf.Variable(float(r)), tf.Variable([r])]
        hvd.broadcast_variables(variables, root, members)
        assert [np.ravel(v)[0] for v in variables] == [root, root]
        assert [v.numpy() for v in hvd.broadcast_([tf.Variable(r)], root, **others)] == [root]
        assert hvd.broadcast_object({"rank": r}, root, **others) == {"rank": root}
        assert hvd.broadcast_object_fn(root, **others)(r) == root
        assert hvd.allgather_object(r, **others) == members.ranks
        slices = tf.IndexedSlices(tf.ones([1]), tf.constant([place]), tf.constant([k]))
        same(tf.convert_to_tensor(hvd.allreduce(slices, **others)), tf.fill([k], 1 / k))
        outside = next((rank for rank in range(n) if rank not in members.ranks), n)
        with raises(tf.errors.InvalidArgumentError, "HorovodBroadcast"):
            hvd.broadcast(rows, outside, **others)
        if k > 1:
            expect_gradients(members)
    with raises(NotImplementedError, "global process set"):
        hvd.allreduce(tf.ones([2]), op=hvd.Adasum, **others)
    with raises(NotImplementedError, "global process set"):
        hvd.DistributedOptimizer(tf1.train.GradientDescentOptimizer(1.0), op=hvd.Adasum, **others)
    w = tf.Variable(1.0)
    optimizer = hvd.DistributedOptimizer(tf1.train.GradientDescentOptimizer(1.0), **others)
    gradient = optimizer.compute_gradients(lambda: w * (r + 1.0), [w])[0][0].numpy()
    assert gradient == (np.mean([rank + 1 for rank in members.ranks]) if members.included() else r + 1)
    assert hvd.remove_process_set(members)


def expect_gradients(members: Any) -> None:
    """Through a gather and a scatter within the set."""
    x = tf.ones([members.size()])
    for function in (hvd.allgather, hvd.reducescatter, hvd.alltoall, hvd.allreduce):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x, process_set=members))
        same(tape.gradient(loss, x), tf.ones_like(x))


def check_errors_in_graphs() -> None:
    n, first = hvd.size(), hvd.rank() == 0
    invalid, precondition = tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError
    for kind, wrong in (
        (invalid, lambda x: hvd.alltoall(x, [n] * n)[0]),
        (invalid, lambda x: hvd.alltoall(x)),
        (invalid, lambda x: hvd.broadcast(x, n)),
        (tf.errors.AbortedError, lambda x: hvd.reducescatter(x, op=hvd.Max, name="max")),
        (precondition, lambda x: hvd.broadcast(x, 0 if first else 1, name="root")),
        (precondition, lambda x: hvd.reducescatter(tf.ones([n + first]), name="rows")),
        (precondition, lambda x: hvd.grouped_allreduce([x, x[: n + 1 - first]], name="group")[0]),
        (precondition, lambda x: hvd.allreduce(x, op=hvd.Sum if first else hvd.Min, name="op")),
        (precondition, lambda x: hvd.allreduce(x, postscale_factor=1.0 + first, name="factor")),
        (precondition, lambda x: hvd.allreduce(tf.cast(x, "float64" if first else "float32"), name="dtype")),
    ):
        with raises(kind, "Horovod"):
            tf.function(wrong)(tf.ones([n + 1, 2]))
        same(hvd.allreduce(tf.ones([1]), op=hvd.Sum), tf.constant([float(n)]))
        with tf.Graph().as_default(), tf1.Session() as session:
            result = wrong(tf.ones([n + 1, 2]))
            with raises(kind, "Horovod"):
                session.run(result)
    for wrong in (tf.constant(["text"]), tf.constant([1], tf.uint32)):
        with raises((TypeError, ValueError, invalid)):  # type: ignore[arg-type]
            tf.function(lambda wrong=wrong: hvd.allreduce(wrong))()


def check_names_in_graphs() -> None:
    """As documented, as they appear in timelines and messages."""
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, [2], name="in/put-x")
        y = tf1.placeholder(tf.float32, [2], name="y")
        hvd.allreduce(x)
        hvd.allgather(x)
        hvd.grouped_allreduce([x, y])
        hvd.allreduce(x, name="mine")
        with tf.name_scope("scope"):
            hvd.broadcast(x, 0)
        names = {op.name for op in graph.get_operations() if op.type.startswith("Horovod")}
    assert names == {
        "HorovodAllreduce_in_put_x_0",
        "HorovodAllgather_in_put_x_0",
        "HorovodGroupedAllreduce_in_put_x_0_y_0",
        "mine",
        "scope/HorovodBroadcast_in_put_x_0",
    }, names


def check_hook_and_slots() -> None:
    r = hvd.rank()
    with tf.Graph().as_default():
        w = tf1.get_variable("w", initializer=[float(r)], use_resource=True)
        optimizer = hvd.DistributedOptimizer(tf1.train.MomentumOptimizer(0.0, 0.9), name="Mine")
        train_op = optimizer.minimize(tf.reduce_sum(w), global_step=tf1.train.get_or_create_global_step())
        assert optimizer.get_name() == "Mine"
        assert optimizer.get_slot(w, "momentum") is not None
        assert optimizer.get_slot(w, "momentum") is optimizer._optimizer.get_slot(w, "momentum")
        hook = hvd.BroadcastGlobalVariablesHook(1, device=CPU)
        with tf1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            assert session.run(w).tolist() == [1.0]
            session.run(train_op)


def check_everything_is_there() -> None:
    for name in ("mpi_ops", "util", "functions", "compression"):
        assert getattr(hvd, name).__name__ == f"horovod.tensorflow.{name}"
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)
    assert hvd.handle_average_backwards_compatibility(hvd.Sum, None) == hvd.Sum
    assert type(hvd.nccl_built()) is int and hvd.is_homogeneous() in (True, False)
    for built in (
        hvd.mpi_built,
        hvd.gloo_built,
        hvd.ddl_built,
        hvd.ccl_built,
        hvd.cuda_built,
        hvd.rocm_built,
    ):
        assert type(built()) is bool
