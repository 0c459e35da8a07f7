"""TF1 graphs and sessions: optimizers, hooks, several passes per step."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import tensorflow as tf
from checks_training import data
from util_expect import raises, skip

import horovod.tensorflow as hvd

tf1 = tf.compat.v1
STEPS = 6


def optimizers() -> list[Any]:
    return [
        tf1.train.GradientDescentOptimizer(0.1),
        tf1.train.MomentumOptimizer(0.05, 0.9),
        tf1.train.AdamOptimizer(0.05),
        tf1.train.AdagradOptimizer(0.05),
    ]


def train(distributed: bool, which: int, resource: bool) -> np.ndarray[Any, Any]:
    x, y = data()
    if distributed:
        x, y = x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]
    with tf.Graph().as_default():
        inputs, labels = tf1.placeholder(tf.float32, [None, 4]), tf1.placeholder(tf.float32, [None, 2])
        start = np.ones((4, 2), np.float32) * (1 + distributed * hvd.rank())
        w = tf1.get_variable("w", initializer=start, use_resource=resource)
        b = tf1.get_variable("b", [2], initializer=tf1.zeros_initializer(), use_resource=resource)
        loss = tf.reduce_mean((inputs @ w + b - labels) ** 2)
        optimizer = optimizers()[which]
        if distributed:
            optimizer = hvd.DistributedOptimizer(optimizer)
        step = tf1.train.get_or_create_global_step()
        train_op = optimizer.minimize(loss, global_step=step)
        hooks = [tf1.train.StopAtStepHook(last_step=STEPS)]
        if distributed:
            hooks.append(hvd.BroadcastGlobalVariablesHook(0))
            assert optimizer.get_slot_names() == optimizer._optimizer.get_slot_names()
            assert len(optimizer.variables()) == len(optimizer._optimizer.variables())
        with tempfile.TemporaryDirectory() as directory:
            checkpoints = directory if hvd.rank() == 0 else None
            with tf1.train.MonitoredTrainingSession(checkpoint_dir=checkpoints, hooks=hooks) as session:
                while not session.should_stop():
                    session.run(train_op, {inputs: x, labels: y})
                    value = session.run_step_fn(lambda step_context: step_context.session.run(w))
    return np.asarray(value)


def check_session_equals_the_whole() -> None:
    for which in range(4):
        for resource in (True, False):
            np.testing.assert_allclose(
                train(True, which, resource), train(False, which, resource), rtol=2e-5, atol=1e-6
            )


def check_graph_collectives() -> None:
    n, r = hvd.size(), hvd.rank()
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, 2])
        total, gathered = hvd.allreduce(x, op=hvd.Sum), hvd.allgather(x)
        swapped, received = hvd.alltoall(x, tf.fill([n], 1))
        (gradient,) = tf1.gradients(tf.reduce_sum(hvd.allreduce(x, name="g")) * (r + 1.0), x)
        many = [hvd.allreduce(x + float(i), op=hvd.Sum) for i in range(50)]
        assert gathered.shape.as_list() == [None, 2]
        feed = {x: np.full((n, 2), r + 1.0)}
        results = session.run([total, gathered, swapped, received, gradient, many, hvd.size_op()], feed)
        assert results[0].tolist() == [[n * (n + 1) / 2] * 2] * n and results[1].shape == (n * n, 2)
        assert results[2][:, 0].tolist() == [i + 1.0 for i in range(n)] and results[3].tolist() == [1] * n
        assert results[4].tolist() == [[(n + 1) / 2] * 2] * n and results[6] == n
        assert all(value[0, 0] == n * (n + 1) / 2 + n * i for i, value in enumerate(results[5]))
        last, fence = hvd.join(), hvd.barrier()
        session.run(fence)
        assert session.run(last) in range(n)
        bad = hvd.allreduce(tf.ones([2 + (r == 0)]), name="bad")
        with raises(tf.errors.FailedPreconditionError, "HorovodAllreduce"):
            session.run(bad)


def check_broadcast_global_variables() -> None:
    r = hvd.rank()
    with tf.Graph().as_default(), tf1.Session() as session:
        for resource in (True, False):
            tf1.get_variable(f"v{resource}", initializer=[float(r)], use_resource=resource)
            tf1.get_variable(f"i{resource}", initializer=r, use_resource=resource)
        operation = hvd.broadcast_global_variables(1)
        resources = [v for v in tf1.global_variables() if v.name.endswith("True:0")]
        values = hvd.broadcast_(resources, 0, name="in_place")
        with raises(ValueError, "ref"):
            hvd.broadcast_(tf1.global_variables(), 0)
        session.run(tf1.global_variables_initializer())
        assert np.concatenate([np.ravel(v) for v in session.run(values)]).tolist() == [0, 0]
        session.run(tf1.global_variables_initializer())
        session.run(operation)
        assert [np.ravel(v).tolist() for v in session.run(tf1.global_variables())] == [[1]] * 4
        assert hvd.broadcast_object(r, 1, session=session) == 1


def check_checkpoint_without_passes() -> None:
    """What was saved with one pass per step is loaded with two."""
    with tempfile.TemporaryDirectory() as directory:
        values = []
        for k in (1, 2):
            with tf.Graph().as_default():
                w = tf1.get_variable("w", initializer=10.0, use_resource=True)
                optimizer = hvd.DistributedOptimizer(
                    tf1.train.MomentumOptimizer(1.0, 0.9), backward_passes_per_step=k
                )
                train_op = optimizer.minimize(w, global_step=tf1.train.get_or_create_global_step())
                own = f"{directory}/{hvd.rank()}"
                with tf1.train.MonitoredTrainingSession(checkpoint_dir=own) as session:
                    session.run(train_op)
                    session.run(train_op)
                    values.append(session.run(w))
        np.testing.assert_allclose(values, [10 - 1 - 1.9, 10 - 1 - 1.9 - (2 + 0.9 * 1.9)], rtol=1e-5)


def passes(k: int, average: bool, steps: int) -> list[float]:
    with tf.Graph().as_default(), tf1.Session() as session:
        w = tf1.get_variable("w", initializer=10.0, use_resource=True)
        scale = tf1.placeholder(tf.float32, [])
        optimizer = hvd.DistributedOptimizer(
            tf1.train.GradientDescentOptimizer(1.0),
            backward_passes_per_step=k,
            average_aggregated_gradients=average,
        )
        step = tf1.train.get_or_create_global_step()
        train_op = optimizer.minimize(w * scale, global_step=step)
        assert tf1.global_variables() == [w, step]  # the others are in no checkpoint
        session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
        values = []
        for i in range(steps):
            session.run(train_op, {scale: (i + 1) * (hvd.rank() + 1.0)})
            values.append(float(session.run(w)))
        assert session.run(step) == steps // k
    return values


def check_backward_passes_per_step() -> None:
    mean = (hvd.size() + 1) / 2
    np.testing.assert_allclose(passes(1, False, 2), [10 - mean, 10 - 3 * mean])
    np.testing.assert_allclose(
        passes(3, False, 7), [10, 10, 10 - 6 * mean, 10 - 6 * mean] + [10 - 6 * mean] + [10 - 21 * mean] * 2
    )
    np.testing.assert_allclose(passes(2, True, 4), [10, 10 - 1.5 * mean, 10 - 1.5 * mean, 10 - 5 * mean])
    sgd = tf1.train.GradientDescentOptimizer(1.0)
    with raises(ValueError, "backward_passes_per_step"):
        hvd.DistributedOptimizer(sgd, backward_passes_per_step=0)
    with raises(ValueError, "graph"):
        hvd.DistributedOptimizer(sgd, backward_passes_per_step=2)
    with tf.Graph().as_default():
        table = tf1.get_variable("table", [4, 2], use_resource=True)
        optimizer = hvd.DistributedOptimizer(sgd, backward_passes_per_step=2)
        with raises(ValueError, "sparse_as_dense"):
            optimizer.minimize(tf.reduce_sum(tf.gather(table, [1])))
        optimizer = hvd.DistributedOptimizer(sgd, backward_passes_per_step=2, sparse_as_dense=True)
        optimizer.minimize(tf.reduce_sum(tf.gather(table, [1])))


def check_optimizer_options() -> None:
    n, r = hvd.size(), hvd.rank()
    for options, expected in (
        ({"op": hvd.Sum}, n * (n + 1) / 2),
        ({"compression": hvd.Compression.fp16}, (n + 1) / 2),
        ({"groups": 1}, (n + 1) / 2),
        ({"gradient_predivide_factor": 2.0}, (n + 1) / 2),
        ({"name": "Mine"}, (n + 1) / 2),
    ):
        w = tf.Variable(0.0)
        optimizer = hvd.DistributedOptimizer(tf1.train.GradientDescentOptimizer(1.0), **options)
        pairs = optimizer.compute_gradients(lambda w=w: w * (r + 1.0), [w])
        assert pairs[0][0].numpy() == expected, options
        optimizer.apply_gradients(pairs)
        assert w.numpy() == -expected
    local = tf.Variable(0.0)
    optimizer.register_local_var(local)
    pairs = optimizer.compute_gradients(lambda: local * (r + 1.0), [local])
    np.testing.assert_allclose(pairs[0][0].numpy(), (r + 1) / n)


def check_adasum_optimizer() -> None:
    if not hvd.check_num_rank_power_of_2(hvd.size()):
        skip("Adasum needs a power of two of ranks")
    sgd = tf1.train.GradientDescentOptimizer(1.0)
    with raises(ValueError, "average_aggregated_gradients"):
        hvd.DistributedOptimizer(sgd, op=hvd.Adasum, average_aggregated_gradients=True)
    with raises(ValueError, "Adasum"):
        hvd.DistributedOptimizer(object(), op=hvd.Adasum)
    for k in (1, 2):
        with tf.Graph().as_default(), tf1.Session() as session:
            w = tf1.get_variable("w", initializer=[10.0, 10.0], use_resource=True)
            # Equal steps: Adasum of a and a is a.
            optimizer = hvd.DistributedOptimizer(
                tf1.train.GradientDescentOptimizer(1.0), op=hvd.Adasum, backward_passes_per_step=k
            )
            train_op = optimizer.minimize(tf.reduce_sum(w * [1.0, 2.0]))
            assert tf1.global_variables() == [w]
            session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
            for _ in range(4):
                session.run(train_op)
            np.testing.assert_allclose(session.run(w), [6.0, 2.0])
    # Orthogonal steps add up.
    w = tf.Variable(tf.zeros([hvd.size()]))
    optimizer = hvd.DistributedOptimizer(tf1.train.GradientDescentOptimizer(1.0), op=hvd.Adasum)
    pairs = optimizer.compute_gradients(lambda: w[hvd.rank()], [w])
    optimizer.apply_gradients([(tf.convert_to_tensor(g), v) for g, v in pairs])
    np.testing.assert_allclose(w, -np.ones(hvd.size()))


def check_adasum_of_variables_that_are_no_resources() -> None:
    """What is read from them changes with them."""
    if not hvd.check_num_rank_power_of_2(hvd.size()):
        skip("Adasum needs a power of two of ranks")
    tf1.disable_control_flow_v2()  # which can't assign to them
    for k in (1, 2):
        with tf.Graph().as_default(), tf1.Session() as session:
            w = tf1.get_variable("w", initializer=tf.fill([hvd.size()], 10.0), use_resource=False)
            optimizer = hvd.DistributedOptimizer(
                tf1.train.GradientDescentOptimizer(1.0), op=hvd.Adasum, backward_passes_per_step=k
            )
            # Orthogonal steps add up.
            train_op = optimizer.minimize(tf.reduce_sum(w * tf.one_hot(hvd.rank(), hvd.size())))
            session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
            for _ in range(4):
                session.run(train_op)
            np.testing.assert_allclose(session.run(w), np.full(hvd.size(), 6.0))
    tf1.enable_control_flow_v2()
