"""TensorFlowState, TensorFlowKerasState and the errors that `run` understands, among ranks that stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from util_expect import raises

import horovod.tensorflow as hvd
from horovod.common.session import for_query


def check_state_of_variables() -> None:
    weights = tf.Variable(np.full(3, hvd.rank(), np.float32))
    counter = tf.Variable(hvd.rank(), dtype=tf.int64)
    half = tf.Variable([0.5 * hvd.rank()], dtype=tf.bfloat16)
    state = hvd.elastic.TensorFlowState([weights, counter, half], batch=hvd.rank())
    assert counter.numpy() == hvd.rank(), "nothing is sent when the state is made: a new rank would be alone"
    weights.assign_add([1.0, 1.0, 1.0])
    state.sync()
    assert (weights.numpy() == 1.0).all() and counter.numpy() == 0 and half.numpy() == 0
    assert state.batch == 0
    for _ in range(2):
        weights.assign_add([1.0, 2.0, 3.0])
        counter.assign(7)
        state.batch = 9
        state.restore()
        assert (weights.numpy() == 1.0).all() and counter.numpy() == 0 and state.batch == 0


def check_state_of_a_session() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("elastic", initializer=np.float32(hvd.rank()), use_resource=True)
        session.run(tf.compat.v1.global_variables_initializer())
        state = hvd.elastic.TensorFlowState(session=session, step=hvd.rank())
        operations = len(tf.compat.v1.get_default_graph().get_operations())
        for _ in range(2):
            state.sync()
            assert session.run(variable) == 0 and state.step == 0
            variable.load(5.0, session)
            state.restore()
            assert session.run(variable) == 0
        reads = len(tf.compat.v1.get_default_graph().get_operations()) - operations
        assert reads <= 4, "what a new rank does not have must not be added by each sync"


def check_a_graph_needs_its_session() -> None:
    with tf.Graph().as_default():
        tf.compat.v1.get_variable("elastic_alone", initializer=1.0)
        with raises(ValueError, "needs the session"):
            hvd.elastic.TensorFlowState()


def run(error: Exception) -> Any:
    """What comes out of `run` for an error, without a job that could go on."""

    @hvd.elastic.run
    def train(state: Any) -> None:
        raise error

    return train(hvd.elastic.TensorFlowState([], batch=0))


def check_failures_of_collectives_are_ours() -> None:
    for text in ("HorovodAllreduce failed", "in HorovodGroupedAllreduce_3: lost", "HorovodBroadcast"):
        with raises(hvd.HorovodInternalError, text):
            run(tf.errors.UnknownError(None, None, text))
        with raises(hvd.HorovodInternalError, text):
            run(tf.errors.InternalError(None, None, text))


def check_other_errors_stay_what_they_are() -> None:
    """In the original they were swallowed, and the process ended as if all were well."""
    with raises(tf.errors.UnknownError, "the disk"):
        run(tf.errors.UnknownError(None, None, "the disk is full"))
    with raises(tf.errors.InvalidArgumentError):
        run(tf.errors.InvalidArgumentError(None, None, "HorovodAllreduce: a wrong shape"))
    with raises(KeyError):
        run(KeyError("mine"))


def check_an_optimizer_that_has_made_no_step() -> None:
    """A new rank's has as many variables as those of ranks that have."""
    import keras

    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)])
    optimizer = keras.optimizers.Adam(0.1)
    if hvd.rank() == 0:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(tf.ones([2, 3]), training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    seed = next(v for v in model.variables if v.name == "seed_generator_state").numpy()
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, backend=None, epoch=0)
    state.sync()
    assert int(optimizer.iterations.numpy()) == 1
    digests = hvd.allgather_object([v.numpy() for v in [*model.weights, *optimizer.variables]])
    for others in digests[1:]:
        for ours, theirs in zip(digests[0], others, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    model(tf.ones([2, 3]), training=True)
    state.restore()
    now = next(v for v in model.variables if v.name == "seed_generator_state").numpy()
    np.testing.assert_array_equal(seed, now)
    with raises(ValueError, "must be built"):
        hvd.elastic.TensorFlowKerasState(keras.Sequential([keras.layers.Dense(1)]))


def check_a_process_set_that_is_gone() -> None:
    """As when an elastic job has shrunk: an error, and not a training alone or with other ranks."""
    session, members = for_query(), hvd.add_process_set([0])
    variable = tf.Variable([1.0])

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * 2.0)
        return hvd.DistributedGradientTape(tape, process_set=members).gradient(loss, [variable])

    session.elastic = True
    try:
        assert step()[0].numpy() == 2.0
        assert hvd.remove_process_set(members)
        with raises(tf.errors.InvalidArgumentError, "process set"):
            step()
    finally:
        session.elastic = False
    with raises(tf.errors.InvalidArgumentError, "not registered"):
        tf.function(step.python_function)()
