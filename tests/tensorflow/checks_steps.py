"""What counts as a step of the training. Another thing that is trained counts from its second step on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from util_expect import cases

import horovod.tensorflow as hvd

tf1 = tf.compat.v1
TIMES = 4
MODES = "eager", "function", "compiled"


def counted(run: Callable[[], Any]) -> int:
    """How many steps TIMES calls have."""
    for _ in range(2):
        run()
    before = hvd.metrics()["steps_total"]
    for _ in range(TIMES):
        run()
    return int(hvd.metrics()["steps_total"] - before)


def made(function: Callable[..., Any], mode: str) -> Any:
    return function if mode == "eager" else tf.function(function, jit_compile=mode == "compiled")


def variables(count: int = 3) -> list[Any]:
    return [tf.Variable(tf.ones([4])) for _ in range(count)]


def tape_of(weights: list[Any], **options: Any) -> tuple[Any, Any]:
    """A distributed tape, and the loss that is on it."""
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.add_n([tf.reduce_sum(weight**2) for weight in weights])
    return hvd.DistributedGradientTape(tape, **options), loss


def descend(weights: list[Any], gradients: list[Any]) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.assign_sub(0.1 * gradient)


@cases(*MODES)
def check_tape(mode: str) -> None:
    weights = variables()

    def step() -> None:
        tape, loss = tape_of(weights)
        descend(weights, tape.gradient(loss, weights))

    assert counted(made(step, mode)) == TIMES
    groups = variables()

    def step_in_groups() -> None:
        tape, loss = tape_of(groups, groups=2)
        descend(groups, tape.gradient(loss, groups))

    assert counted(made(step_in_groups, mode)) == TIMES


@cases(*MODES)
def check_several_tapes_are_one_step(mode: str) -> None:
    """Those of a generator and a discriminator, as alike as can be."""
    models = [variables(), variables()]

    def step() -> None:
        tapes = [tape_of(weights) for weights in models]
        for weights, (tape, loss) in zip(models, tapes, strict=True):
            descend(weights, tape.gradient(loss, weights))

    assert counted(made(step, mode)) == TIMES
    often, seldom = models

    def uneven() -> None:
        for weights in (often, often, seldom):
            tape, loss = tape_of(weights)
            descend(weights, tape.gradient(loss, weights))

    assert counted(made(uneven, mode)) == 2 * TIMES


@cases(*MODES)
def check_a_persistent_tape_is_one_step(mode: str) -> None:
    weights = variables()

    def step() -> None:
        tape, loss = tape_of(weights)
        for part in (weights[:1], weights[1:], weights[:1]):
            descend(part, tape.gradient(loss, part))

    assert counted(made(step, mode)) == TIMES


@cases(*MODES)
def check_a_persistent_tape_with_nothing_to_reduce_at_first(mode: str) -> None:
    """Neither local sources nor what the loss does not depend on make a step of what follows none."""
    weights, unused = variables(), variables(1)

    def step() -> None:
        tape, loss = tape_of(weights)
        tape.register_local_source(weights[0])
        assert tape.gradient(loss, unused) == [None]
        for part in (weights[:1], weights[1:]):
            descend(part, tape.gradient(loss, part))

    assert counted(made(step, mode)) == TIMES


def check_a_tape_that_records_again() -> None:
    weights = variables()
    tape = hvd.DistributedGradientTape(tf.GradientTape(persistent=True))

    def step() -> None:
        with tape:
            loss = tf.add_n([tf.reduce_sum(weight**2) for weight in weights])
        for part in (weights[:2], weights[:1]):
            tape.gradient(loss, part)

    assert counted(step) == TIMES

    def reset() -> None:
        with tape:
            tape.reset()
            loss = tf.add_n([tf.reduce_sum(weight**2) for weight in weights])
        tape.gradient(loss, weights)

    assert counted(reset) == TIMES


def check_traced_again() -> None:
    weights = variables()
    steps = []

    @tf.function
    def step(x: Any) -> None:
        steps.append(x)
        tape, loss = tape_of(weights)
        descend(weights, tape.gradient(loss, weights))

    assert counted(lambda: step(tf.ones([len(steps)]))) == TIMES
    assert len(steps) == TIMES + 2


@cases("function", "compiled")
def check_loop_in_a_function(mode: str) -> None:
    weights = variables()

    def steps() -> None:
        for _ in tf.range(3):
            tape, loss = tape_of(weights)
            descend(weights, tape.gradient(loss, weights))

    assert counted(made(steps, mode)) == 3 * TIMES


@cases(*MODES)
def check_nothing_is_trained(mode: str) -> None:
    """As where an input is to be changed, or all gradients are those of this rank."""

    def step() -> Any:
        with tf.GradientTape() as tape:
            x = tf.ones([3])
            tape.watch(x)
            loss = tf.reduce_sum(x**2)
        return hvd.DistributedGradientTape(tape).gradient(loss, x)

    assert counted(made(step, mode)) == 0


@cases(*MODES)
def check_tape_and_optimizer(mode: str) -> None:
    """Also where both reduce, as clipped gradients have no mark."""
    for clip in (False, True):
        weights = variables()
        optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
        optimizer.build(weights)

        def step(weights: Any = weights, optimizer: Any = optimizer, clip: bool = clip) -> None:
            tape, loss = tape_of(weights)
            gradients = tape.gradient(loss, weights)
            if clip:
                gradients = [tf.clip_by_value(gradient, -1.0, 1.0) for gradient in gradients]
            optimizer.apply_gradients(zip(gradients, weights, strict=True))

        assert counted(made(step, mode)) == TIMES


@cases(*MODES)
def check_without_others(mode: str) -> None:
    """Ranks that are not in the set train on their own; so does one that is alone in it."""
    for ranks in ([0], list(range(1, hvd.size()))):
        process_set = hvd.add_process_set(ranks)
        weights = variables()

        def step(weights: Any = weights, process_set: Any = process_set) -> None:
            tape, loss = tape_of(weights, process_set=process_set)
            descend(weights, tape.gradient(loss, weights))

        assert counted(made(step, mode)) == TIMES
        hvd.remove_process_set(process_set)


def check_slices() -> None:
    """Of an embedding: gathered, not reduced."""
    for mode in ("eager", "function"):
        table = tf.Variable(tf.ones([5, 2]))

        def step(table: Any = table) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, [hvd.rank(), 3]))
            gradient = hvd.DistributedGradientTape(tape).gradient(loss, table)
            assert isinstance(gradient, tf.IndexedSlices)
            table.scatter_sub(tf.IndexedSlices(gradient.values, gradient.indices))

        assert counted(made(step, mode)) == TIMES


def in_session(passes: int, op: int = hvd.Average, groups: int | None = None) -> int:
    with tf.Graph().as_default():
        weights = [tf1.get_variable(f"w{i}", initializer=np.ones(4, np.float32)) for i in range(3)]
        loss = tf.add_n([tf.reduce_sum(weight**2) for weight in weights])
        optimizer = hvd.DistributedOptimizer(
            tf1.train.GradientDescentOptimizer(0.1), backward_passes_per_step=passes, op=op, groups=groups
        )
        train_op = optimizer.minimize(loss)
        with tf1.Session() as session:
            session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
            return counted(lambda: session.run(train_op))


def check_session() -> None:
    assert in_session(1) == TIMES
    assert in_session(1, groups=2) == TIMES
    assert in_session(2) == TIMES / 2
    if hvd.size() & (hvd.size() - 1) == 0:
        assert in_session(1, hvd.Adasum) == TIMES
        assert in_session(2, hvd.Adasum) == TIMES / 2


def check_adasum_at_once() -> None:
    if hvd.size() & (hvd.size() - 1) == 0:
        weights = variables()
        optimizer = hvd.DistributedOptimizer(tf1.train.GradientDescentOptimizer(0.1), op=hvd.Adasum)
        pairs = [(tf.ones([4]), weight) for weight in weights]
        assert counted(lambda: optimizer.apply_gradients(pairs)) == TIMES
