"""Training with the tape: the ranks on parts of a batch do what one process does on the whole."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from util_expect import raises

import horovod.tensorflow as hvd
from horovod.common.session import for_query

STEPS = 5


def data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """As many examples for each rank."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(12 * hvd.size(), 4)).astype(np.float32)
    return x, (x @ generator.normal(size=(4, 2))).astype(np.float32)


def mine(array: np.ndarray[Any, Any]) -> Any:
    return tf.constant(array[hvd.rank() :: hvd.size()])


def train(distributed: bool, eager: bool, **options: Any) -> list[np.ndarray[Any, Any]]:
    tf.random.set_seed(7 if not distributed else 100 + hvd.rank())
    rng = np.random.default_rng(3)
    start = [rng.normal(size=(4, 8)), rng.normal(size=(8, 2)), np.zeros(2)]
    weights = [tf.Variable(value.astype(np.float32) * (1 + hvd.rank() * distributed)) for value in start]
    x, y = data()
    x, y = (mine(x), mine(y)) if distributed else (tf.constant(x), tf.constant(y))
    if distributed:
        hvd.broadcast_variables(weights, root_rank=0)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(x @ weights[0]) @ weights[1] + weights[2] - y) ** 2)
        if distributed:
            tape = hvd.DistributedGradientTape(tape, **options)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)

    run = step if eager else tf.function(step)
    for _ in range(STEPS):
        run()
    return [weight.numpy() for weight in weights]


def check_parts_equal_the_whole() -> None:
    expected = train(False, False)
    for eager in (True, False):
        for options in (
            {},
            {"groups": 2},
            {"gradient_predivide_factor": 4.0},
            {"op": hvd.Average, "sparse_as_dense": True},
        ):
            for actual, wanted in zip(train(True, eager, **options), expected, strict=True):
                np.testing.assert_allclose(actual, wanted, rtol=2e-5, atol=1e-6, err_msg=str(options))
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        for actual, wanted in zip(train(True, False, compression=compression), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, atol=0.05)


def check_tape() -> None:
    n, r = hvd.size(), hvd.rank()
    mean = (n + 1) / 2
    a, b, unused = tf.Variable([1.0, 2.0]), tf.Variable(3.0), tf.Variable([9.0])

    def record(**options: Any) -> tuple[Any, Any]:
        with tf.GradientTape(persistent=True) as tape:
            loss = (tf.reduce_sum(a * 2.0) + b) * float(r + 1)
        return hvd.DistributedGradientTape(tape, **options), loss

    tape, loss = record()
    assert isinstance(tape, tf.GradientTape) and type(tape).__name__ == "GradientTape"
    grads = tape.gradient(loss, [a, unused, b])
    assert grads[0].numpy().tolist() == [2 * mean] * 2 and grads[1] is None and grads[2].numpy() == mean
    assert tape.gradient(loss, b).numpy() == mean
    nested = tape.gradient(loss, {"x": [a], "y": (b, unused)})
    assert nested["x"][0].numpy().tolist() == [2 * mean] * 2 and nested["y"][1] is None
    assert tape.gradient(loss, [a, b], use_generic_names=True)[1].numpy() == mean
    zero = tape.gradient(loss, [unused], unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert zero[0].numpy().tolist() == [0.0]
    assert record(op=hvd.Sum)[0].gradient(record(op=hvd.Sum)[1], [b]) == [None]

    with hvd.DistributedGradientTape(tf.GradientTape()) as inside:
        loss = b * b * float(r + 1)
    assert inside.gradient(loss, [b])[0].numpy() == 6 * mean

    with tf.GradientTape() as tape:  # there are programs that wrap it, or ask it, within the block
        loss = b * b * float(r + 1)
        tape = hvd.DistributedGradientTape(tape)
        assert tape.gradient(loss, b).numpy() == 6 * mean
    with tf.GradientTape() as tape:
        tape = hvd.DistributedGradientTape(tape)
        loss = b * b * float(r + 1)
    assert tape.gradient(loss, b).numpy() == 6 * mean

    for options, expected in (
        ({"op": hvd.Sum}, mean * n),
        ({"groups": [[a, b]]}, mean),
        ({"groups": [[b]]}, mean),
        ({"num_groups": 2}, mean),
        ({"gradient_predivide_factor": 2.0}, mean),
        ({"compression": hvd.Compression.fp16}, mean),
    ):
        tape, loss = record(**options)
        assert tape.gradient(loss, [a, unused, b])[2].numpy() == expected, options

        @tf.function
        def graph(options: Any = options) -> Any:
            tape, loss = record(**options)
            return tape.gradient(loss, [a, b])

        assert graph()[1].numpy() == expected, options
    for wrong in ({"groups": 0}, {"groups": "x"}, {"groups": [[1]]}, {"groups": [[a], [a]]}):
        with raises(ValueError, "groups"):
            record(**wrong)
    with raises(ValueError, "Average"):
        record(op=hvd.Sum, gradient_predivide_factor=2.0)


def check_generic_names() -> None:
    """With them the graphs of the ranks may have different names."""
    v = tf.Variable([1.0])

    @tf.function
    def step() -> Any:
        with tf.name_scope(f"rank_{hvd.rank()}"), tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * v) if hvd.rank() == 0 else tf.reduce_sum(tf.square(v))
        tape = hvd.DistributedGradientTape(tape)
        return tape.gradient(loss, [v], use_generic_names=True)

    assert step()[0].numpy() == 2.0


def check_local_sources() -> None:
    n, r = hvd.size(), hvd.rank()
    shared, local = tf.Variable([1.0]), tf.Variable([[1.0], [2.0]])
    for scale, dense in ((True, True), (False, True), (True, False)):
        with tf.GradientTape() as tape:
            picked = local if dense else tf.gather(local, [0])
            loss = tf.reduce_sum(shared * (r + 1.0)) + tf.reduce_sum(picked) * (r + 1.0)
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
        tape.register_local_source(local)
        mine, others = tape.get_local_and_global_gradients(loss, [shared, local])
        assert mine[0][0] is local and others[0][0] is shared and len(mine) == len(others) == 1
        assert others[0][1].numpy() == (n + 1) / 2
        actual = tf.convert_to_tensor(mine[0][1]).numpy()[0, 0]
        np.testing.assert_allclose(actual, (r + 1) / (n if scale else 1))


def check_partial_tape() -> None:
    n, r = hvd.size(), hvd.rank()
    layers = [tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones") for _ in range(3)]
    x = tf.ones([1, 1])
    for local in (layers[0], layers[:2], None):
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_sum(layer(x)) for layer in layers) * (r + 1.0)
        tape = hvd.PartialDistributedGradientTape(tape, local_layers=local)
        sources = [layer.trainable_weights[0] for layer in layers]
        count = {id(layers[0]): 1, id(None): 0}.get(id(local), 2)
        for i, gradient in enumerate(tape.gradient(loss, sources)):
            np.testing.assert_allclose(gradient.numpy().item(), (r + 1) / n if i < count else (n + 1) / 2)
    late = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    with hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=late) as tape:
        loss = tf.reduce_sum(late(x)) * (r + 1.0)  # which makes the layer's weights
    (gradient,) = tape.gradient(loss, late.trainable_weights)
    np.testing.assert_allclose(gradient.numpy().item(), (r + 1) / n)
    for wrong in (7, "layer", [layers[0], 7]):
        with raises(ValueError, "local_layers"):
            hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=wrong)


def check_sparse_gradients() -> None:
    n, r = hvd.size(), hvd.rank()
    table = tf.Variable(tf.zeros([n + 1, 2]))

    def compute(**options: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [r, n])) * (r + 1.0)
        return hvd.DistributedGradientTape(tape, **options).gradient(loss, [table])[0]

    expected = [[(i + 1) / n] * 2 for i in range(n)] + [[(n + 1) / 2] * 2]
    for run in (compute, tf.function(compute)):
        sparse = run()
        assert isinstance(sparse, tf.IndexedSlices)
        np.testing.assert_allclose(tf.convert_to_tensor(sparse), expected)
        assert isinstance(run(groups=1), tf.IndexedSlices)
        assert isinstance(run(gradient_predivide_factor=2.0), tf.IndexedSlices)
        dense = run(sparse_as_dense=True)
        assert not isinstance(dense, tf.IndexedSlices)
        np.testing.assert_allclose(dense, expected)
    with raises(NotImplementedError):
        compute(op=hvd.Adasum)


def check_elastic_tape() -> None:
    """In an elastic job (HOROVOD_ELASTIC=1) a graph asks for the number of ranks when it runs."""
    n, r = hvd.size(), hvd.rank()
    table, v = tf.Variable(tf.ones([n, 1])), tf.Variable(1.0)

    def step(**options: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = (tf.reduce_sum(tf.gather(table, [r])) + v) * (r + 1.0)
        tape = hvd.DistributedGradientTape(tape, **options)
        tape.register_local_source(table) if options else None
        sparse, dense = tape.gradient(loss, [table, v])
        return tf.convert_to_tensor(sparse), dense

    session = for_query()
    session.elastic = True
    try:
        for run in (step, tf.function(step), tf.function(step, jit_compile=True)):
            sparse, dense = run()
            assert dense.numpy() == (n + 1) / 2
            np.testing.assert_allclose(sparse[:, 0], (np.arange(n) + 1) / n)
        alone = hvd.add_process_set([0])
        for run in (step, tf.function(step)):
            sparse, dense = run(process_set=alone)
            assert dense.numpy() == r + 1.0
        with raises(NotImplementedError, "jit_compile=True"):
            tf.function(step, jit_compile=True)(process_set=alone)
        hvd.remove_process_set(alone)
    finally:
        session.elastic = False


def check_process_set_tape() -> None:
    """Those outside train alone."""
    n, r = hvd.size(), hvd.rank()
    members = hvd.add_process_set(list(range(n - 1)))
    v = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = v * (r + 1.0)
    gradient = hvd.DistributedGradientTape(tape, process_set=members).gradient(loss, v)
    assert gradient.numpy() == (n / 2 if r < n - 1 else r + 1)
    hvd.remove_process_set(members)


def check_many_in_flight() -> None:
    """200 gradients, ready in another order on each rank at each step."""
    steps, count = int(os.environ.get("CHECK_STEPS", "30")), 200
    variables = [tf.Variable(tf.fill([1 + i % 7], 1.0)) for i in range(count)]
    order = list(range(count))
    random.Random(hvd.rank()).shuffle(order)

    @tf.function
    def step(factor: Any) -> Any:
        with tf.GradientTape() as tape:
            # A chain of additions in an order of this rank's own: backwards, gradients appear in that order.
            loss = tf.constant(0.0)
            for i in order:
                loss = loss * 1.0 + tf.reduce_sum(variables[i]) * float(i + 1) * factor
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, groups=count)  # each by itself
        return tape.gradient(loss, variables, use_generic_names=True)

    for number in range(steps):
        results = step(tf.constant(float(hvd.rank() + number)))
        total = sum(rank + number for rank in range(hvd.size()))
        for i in (0, 57, 199):
            assert results[i].numpy().tolist() == [float((i + 1) * total)] * (1 + i % 7), (number, i)


def check_small_gradients_travel_together() -> None:
    """An operation for each would cost a small model too much; large ones do not wait for others."""
    shapes = {"small": [1000], "table": [5, 2], "large": [512, 600], "bias": [600], "last": [3]}
    variables = {name: tf.Variable(tf.ones(shape)) for name, shape in shapes.items()}

    @tf.function
    def step(names: tuple[str, ...]) -> Any:
        with tf.GradientTape() as tape:
            read = {"table": tf.gather(variables["table"], [hvd.rank(), 4])}
            values = [read.get(name, variables[name]) for name in names]
            loss = tf.add_n([tf.reduce_sum(value) for value in values]) * (hvd.rank() + 1.0)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, [variables[name] for name in names])
        return [tf.reduce_max(tf.convert_to_tensor(gradient)) for gradient in gradients]

    def sizes(*names: str) -> list[int]:
        """Of the operations that a step has for its dense gradients."""
        result = step(names)
        assert all(value.numpy() == (hvd.size() + 1) / 2 for value in result), result
        operations = step.get_concrete_function(names).graph.get_operations()
        reductions = [op for op in operations if "Allreduce" in op.type]
        # Operations of other kinds, which no thread helps with, are not to wait for those that one does.
        assert {op.get_attr("stays") for op in reductions} == {"table" not in names}, names
        for op in reductions:  # each hands over to TensorFlow's threads once, not tensor by tensor
            users = {user for output in op.outputs for user in output.consumers()}
            assert len(users) == 1 or not op.get_attr("stays"), users
        return sorted(len(op.inputs) for op in reductions)

    assert sizes("small", "bias", "last") == [3]
    assert sizes("small", "large", "bias", "last") == [1, 3]
    assert sizes("large", "small") == [2]
    assert sizes("small", "table", "last") == [2]


def check_broadcast_of_a_large_model() -> None:
    """It does not need the memory of a second one."""
    count, size = 8, 24 << 20
    variables = [tf.Variable(tf.zeros([size // 4])) for _ in range(count)]

    def broadcast() -> None:
        hvd.broadcast_variables(variables, 1, inplace=True)

    for run in (broadcast, tf.function(broadcast)):
        for number, variable in enumerate(variables):
            variable.assign(tf.fill([size // 4], float(hvd.rank() + number)))
        Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is in use now
        before = memory("VmHWM")
        run()
        grown = memory("VmHWM") - before
        assert grown < count * size * 0.6, (grown, before)
        assert [variable[-1].numpy() for variable in variables] == [number + 1.0 for number in range(count)]


def memory(entry: str) -> int:
    """Bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(entry))


def check_captured_tensors() -> None:
    """TensorFlow names them by what the process has made before, which differs from rank to rank."""
    n = hvd.size()
    for _ in range(hvd.rank()):
        tf.ones([2]) + 1.0
    small, large = tf.ones([2]), tf.ones([1000])  # a constant of the graph, and an argument of it

    @tf.function
    def total() -> Any:
        with tf.name_scope("part"):
            parts = hvd.grouped_allreduce([large, small], op=hvd.Sum)
        return hvd.allreduce(large, op=hvd.Sum), hvd.allreduce(small, op=hvd.Sum), *parts

    for _ in range(2):
        assert all(np.all(value.numpy() == n) for value in total())


def check_names_do_not_depend_on_the_rest_of_a_graph() -> None:
    """Rank 0 reads a variable, has a layer and a name scope that others have not."""
    n, first = hvd.size(), hvd.rank() == 0
    layers = [tf.keras.layers.Dense(2, kernel_initializer="ones") for _ in range(1 + first)]
    layers[-1].build([1, 2])
    own = layers[-1].trainable_weights
    plain = [tf.Variable([float(hvd.rank())]), tf.Variable(3.0)]

    @tf.function
    def step() -> Any:
        before = plain[1] * 2.0 if first else 0.0
        hvd.broadcast_variables(own, 0)
        hvd.broadcast_variables(plain, 0)
        hvd.broadcast_(plain[:1], 1)
        with tf.name_scope("only_here" if first else "there"), tf.name_scope(str(hvd.rank())):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(own[0]) + plain[0] * (hvd.rank() + 1.0)
            tape = hvd.DistributedGradientTape(tape)
            return before, tape.gradient(loss, [*own, *plain], use_generic_names=True)

    for _ in range(2):
        assert step()[1][2].numpy() == (n + 1) / 2
    assert plain[0].numpy() == 0


def check_names_of_an_optimizers_variables() -> None:
    """Keras has the numbers of layers within them, which differ from rank to rank."""

    def made() -> Any:
        model = tf.keras.Sequential([tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)])
        model.build([None, 2])
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        return optimizer.variables() if callable(optimizer.variables) else optimizer.variables

    for _ in range(hvd.rank()):
        made()
    moments = [variable for variable in made() if len(variable.shape)]
    for variable in moments:
        variable.assign(tf.fill(variable.shape, float(hvd.rank())))

    @tf.function
    def from_last() -> None:
        hvd.broadcast_variables(moments, root_rank=hvd.size() - 1)

    from_last()
    assert moments and all(np.all(variable.numpy() == hvd.size() - 1) for variable in moments)
