"""What only the TensorFlow backend has: loops of one's own, sparse gradients, XLA, loss scaling."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from typing import Any
from unittest import mock

import keras_setup as setup
import numpy as np
import tensorflow as tf
from keras_setup import hvd, keras
from util_expect import raises, skip

import horovod.tensorflow as hvd_tf


def loop(optimizer: Any, with_tape: bool, compiled: bool, clip: bool = False, **tape_options: Any) -> Any:
    model = setup.small_model()

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        if with_tape:
            tape = hvd_tf.DistributedGradientTape(tape, **tape_options)
        gradients = tape.gradient(loss, model.trainable_variables)
        if clip:
            gradients, _ = tf.clip_by_global_norm(gradients, 1e3)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    run = tf.function(step) if compiled else step
    for i in range(setup.STEPS):
        rows = slice(i * setup.HALF, (i + 1) * setup.HALF)
        run(tf.constant(setup.share(setup.X)[rows]), tf.constant(setup.share(setup.Y)[rows]))
    return model


def check_loop() -> None:
    alone = setup.trained_alone(setup.sgd())
    for compiled in (True, False):
        setup.assert_same(loop(hvd.DistributedOptimizer(setup.sgd()), False, compiled), alone)
        # A sum, reduced twice, would be twice as large.
        both = hvd.DistributedOptimizer(setup.sgd(0.05), op=hvd.Sum)
        setup.assert_same(loop(both, True, compiled, op=hvd_tf.Sum), alone)
    # What is computed from reduced gradients has no mark. Averaging it again changes nothing.
    setup.assert_same(loop(hvd.DistributedOptimizer(setup.sgd()), True, True, clip=True), alone)


def check_clipping_of_computed_gradients() -> None:
    """Legacy Keras: compute_gradients(), clip, apply_gradients(). All ranks clip the same."""
    if not setup.LEGACY:
        skip("only legacy Keras has compute_gradients()")
    rank, w = hvd.rank(), tf.Variable([1.0, 1.0])
    for optimizer, op in itertools.product((setup.sgd, keras.optimizers.legacy.SGD), (hvd.Average, hvd.Sum)):
        distributed = hvd.DistributedOptimizer(optimizer(1.0), op=op)
        compute = [distributed._compute_gradients]
        compute += [distributed.compute_gradients] if optimizer is setup.sgd else []
        for each in compute:
            w.assign([1.0, 1.0])
            pairs = each(lambda: tf.reduce_sum(w * [4.0 * rank, 0.5]), [w])
            total = [2.0, 0.5] if op == hvd.Average else [4.0, 1.0]
            np.testing.assert_allclose(pairs[0][0], total)
            distributed.apply_gradients([(tf.clip_by_value(g, -0.75, 0.75), v) for g, v in pairs])
            np.testing.assert_allclose(w, [0.25, 1.0 - min(total[1], 0.75)])
        # What was not computed there is reduced as ever.
        w.assign([1.0, 1.0])
        distributed.apply_gradients([(tf.constant([rank + 1.0, 0.0]), w)])
        np.testing.assert_allclose(w, [-0.5 if op == hvd.Average else -2.0, 1.0])
    scaled = keras.mixed_precision.LossScaleOptimizer(hvd.DistributedOptimizer(setup.sgd(1.0), op=hvd.Sum))
    w.assign([1.0, 1.0])
    scaled.minimize(lambda: tf.reduce_sum(w * [4.0 * rank, 0.5]), [w])
    np.testing.assert_allclose(w, [-3.0, 0.0])


def check_functions_that_apply_and_functions_that_compute() -> None:
    """Legacy Keras: one applies what was computed outside of it; the next one computes its own."""
    if not setup.LEGACY:
        skip("only legacy Keras has compute_gradients()")
    rank, w = hvd.rank(), tf.Variable([0.0])
    optimizer = hvd.DistributedOptimizer(setup.sgd(1.0), op=hvd.Sum)

    def loss() -> Any:
        return tf.reduce_sum(w * (rank + 1.0))

    @tf.function(reduce_retracing=False)
    def apply(gradient: Any, again: int) -> None:  # traced for each number
        optimizer.apply_gradients([(gradient, w)])

    @tf.function
    def train() -> None:
        with tf.GradientTape() as tape:
            value = loss()
        optimizer.apply_gradients([(tape.gradient(value, w), w)])

    for again in (1, 2, 2):
        ((gradient, _),) = optimizer.compute_gradients(loss, [w])
        w.assign([0.0])
        apply(gradient, again)
        np.testing.assert_allclose(w, [-3.0])
    train()
    train()
    np.testing.assert_allclose(w, [-9.0])
    ((gradient, _),) = optimizer.compute_gradients(loss, [w])
    optimizer.apply_gradients([(gradient, w)])
    optimizer.apply_gradients([(tf.constant([rank + 1.0]), w)])
    np.testing.assert_allclose(w, [-15.0])


def check_gradients_that_are_computed_only_to_be_looked_at() -> None:
    if not setup.LEGACY:
        skip("only legacy Keras has compute_gradients()")
    for kind in (setup.sgd, keras.optimizers.legacy.SGD):
        w = tf.Variable([0.0])
        optimizer = hvd.DistributedOptimizer(kind(1.0))
        optimizer.apply_gradients([(tf.constant([0.0]), w)])

        def loss(w: Any = w) -> Any:
            return tf.reduce_sum(w * float(hvd.rank()))

        @tf.function
        def looked_at(w: Any = w, optimizer: Any = optimizer, loss: Any = loss) -> Any:
            return [gradient for gradient, _ in optimizer._compute_gradients(loss, [w])]

        @tf.function
        def step(w: Any = w, optimizer: Any = optimizer, loss: Any = loss) -> None:
            with tf.GradientTape() as tape:
                value = loss()
            optimizer.apply_gradients([(tape.gradient(value, w), w)])

        looked_at()
        for _ in range(3):
            step()
        np.testing.assert_allclose(w, [-1.5])


def check_passes_in_a_loop() -> None:
    alone = loop(setup.sgd(0.05), True, True)
    optimizer = hvd.DistributedOptimizer(setup.sgd(0.05), backward_passes_per_step=1)
    setup.assert_same(loop(optimizer, False, True), alone)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.05), backward_passes_per_step=2)
    model = loop(optimizer, False, True)
    assert int(optimizer.iterations) == setup.STEPS
    setup.assert_same_everywhere(model.get_weights())


def check_passes_of_parts_in_turns() -> None:
    """Gradients are summed by place, so that those of another part would be added to them."""
    parts = [tf.Variable([0.0]), tf.Variable([0.0])]
    optimizer = hvd.DistributedOptimizer(setup.sgd(1.0), backward_passes_per_step=2)
    optimizer.build(parts)
    optimizer.apply_gradients([(tf.ones([1]), parts[0])])
    with raises(ValueError, "an optimizer of its own"):
        optimizer.apply_gradients([(tf.ones([1]), parts[1])])


def check_from_horovod_tensorflow() -> None:
    optimizer = hvd_tf.DistributedOptimizer(setup.sgd(0.05), op=hvd_tf.Sum)
    setup.assert_same(setup.trained_together(optimizer), setup.trained_alone(setup.sgd()))
    with raises(ValueError, "Adasum"):
        hvd_tf.DistributedOptimizer(setup.sgd(), op=hvd_tf.Adasum)


def check_steps_per_execution() -> None:
    alone = setup.trained_alone(setup.sgd())
    setup.assert_same(
        setup.trained_together(hvd.DistributedOptimizer(setup.sgd()), steps_per_execution=2), alone
    )


def check_checkpoints_of_tensorflow() -> None:
    with tempfile.TemporaryDirectory() as directory:
        model = setup.trained_together(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(f"{directory}/checkpoint")
        other = setup.trained_together(keras.optimizers.Adam(0.5))
        tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
        setup.assert_same(other, model)
        if setup.LEGACY:
            model.save(f"{directory}/saved_model")
            loaded = hvd.load_model(f"{directory}/saved_model")
            setup.assert_same(loaded, model)
            assert type(loaded.optimizer).__name__ == "Adam"


def check_module_for_tf_keras() -> None:
    import horovod.tensorflow.keras as hvd_tf_keras

    callbacks = [
        hvd_tf_keras.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd_tf_keras.callbacks.MetricAverageCallback(),
    ]
    optimizer = hvd_tf_keras.DistributedOptimizer(
        setup.sgd(), None, "", "", hvd.Compression.none, False, 1.0, 0, 1
    )
    setup.assert_same(
        setup.trained_together(optimizer, callbacks=callbacks, run_eagerly=True),
        setup.trained_alone(setup.sgd()),
    )


def check_jit_compile() -> None:
    alone = setup.trained_alone(setup.sgd())
    setup.assert_same(setup.trained_together(hvd.DistributedOptimizer(setup.sgd()), jit_compile=True), alone)
    passes = hvd.DistributedOptimizer(
        setup.sgd(), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    setup.assert_same(setup.trained_together(passes, batch=setup.HALF // 2, jit_compile=True), alone)


def check_compiled_for_a_gpu() -> None:
    """Where Keras finds a GPU it compiles unless it is told not to. The device list is faked."""
    if setup.LEGACY:
        skip("legacy Keras compiles only if it is told to")
    gpu = [tf.config.LogicalDevice("/device:GPU:0", "GPU")]
    real = tf.config.list_logical_devices
    with mock.patch.object(
        tf.config, "list_logical_devices", lambda kind=None: gpu if kind == "GPU" else real(kind)
    ):
        start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        alone = setup.trained_alone(setup.sgd())
        for optimizer in (
            hvd.DistributedOptimizer(setup.sgd()),
            keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(setup.sgd())),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = setup.trained_together(optimizer, callbacks=[start], jit_compile=True)
            said = [str(each.message) for each in caught if "jit_compile is False now" in str(each.message)]
            assert len(said) == (hvd.rank() == 0), said
            assert not model.jit_compile
            setup.assert_same(model, alone)
        with raises(NotImplementedError, "jit_compile=False"):  # nobody has been there before the function
            setup.trained_together(hvd.DistributedOptimizer(setup.sgd()), jit_compile=True)
        with tf.device("CPU:0"):
            optimizer = hvd.DistributedOptimizer(setup.sgd())
            assert setup.trained_together(optimizer, callbacks=[start], jit_compile=True).jit_compile
        plain = setup.trained_together(setup.sgd(), callbacks=[start], jit_compile=True)
        assert plain.jit_compile
    optimizer = hvd.DistributedOptimizer(setup.sgd())
    assert setup.trained_together(optimizer, callbacks=[start], jit_compile=True).jit_compile


def word_model() -> Any:
    keras.utils.set_random_seed(5)
    return keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            keras.layers.Embedding(11, 4),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )


def trained_on_words(optimizer: Any, together: bool, eagerly: bool = False) -> Any:
    words = (np.arange(setup.STEPS * 2 * setup.HALF * 3).reshape(-1, 3) * 7 % 11).astype("int32")
    model = word_model()
    model.compile(optimizer, "mse", run_eagerly=eagerly)
    x, y = (setup.share(words), setup.share(setup.Y)) if together else (words, setup.Y)
    model.fit(x, y, batch_size=setup.HALF if together else 2 * setup.HALF, verbose=0, shuffle=False)
    return model


def check_sparse_gradients() -> None:
    alone = trained_on_words(setup.sgd(0.5), together=False)
    setup.assert_same(trained_on_words(hvd.DistributedOptimizer(setup.sgd(0.5)), True), alone)
    setup.assert_same(
        trained_on_words(hvd.DistributedOptimizer(setup.sgd(0.5), sparse_as_dense=True), True), alone
    )
    grouped = hvd.DistributedOptimizer(setup.sgd(0.5), groups=1)
    setup.assert_same(trained_on_words(grouped, True, eagerly=True), alone)
    passes = hvd.DistributedOptimizer(setup.sgd(), backward_passes_per_step=2)
    with raises(ValueError, "sparse_as_dense=True"):
        trained_on_words(passes, True, eagerly=True)
    dense = hvd.DistributedOptimizer(setup.sgd(), backward_passes_per_step=2, sparse_as_dense=True)
    trained_on_words(dense, True)


def check_compiled_embedding() -> None:
    """The ranks' last batches have different numbers of rows."""
    words = (np.arange(2 * setup.HALF * 3).reshape(-1, 3) * 7 % 11).astype("int32")
    rows = 2 * setup.HALF - 3 - hvd.rank()
    model = word_model()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse", jit_compile=True)
    model.fit(words[:rows], setup.Y[:rows], batch_size=setup.HALF, epochs=2, verbose=0, shuffle=False)
    setup.assert_same_everywhere(model.get_weights())


def mixed_fit(optimizer: Any, poison: bool, poisoned: int = 1, **options: Any) -> Any:
    """Half precision; `poison`: rank 0's second (or other) batch has gradients that are not finite there."""
    policy = keras.mixed_precision
    policy.set_global_policy("mixed_float16")
    try:
        model = setup.small_model()
    finally:
        policy.set_global_policy("float32")
    model.compile(optimizer, "mse", **options)
    x, y = setup.share(setup.X).copy(), setup.share(setup.Y)
    if poison and hvd.rank() == 0:
        x[poisoned * setup.HALF] = np.inf
    model.fit(x, y, batch_size=setup.HALF, verbose=0, shuffle=False)
    return model


def check_mixed_precision() -> None:
    scale = keras.mixed_precision.LossScaleOptimizer if setup.LEGACY else keras.optimizers.LossScaleOptimizer
    clean = mixed_fit(hvd.DistributedOptimizer(setup.sgd()), poison=False)
    setup.assert_same(clean, setup.trained_alone(setup.sgd()), tolerance=2e-2)
    for optimizer in (
        hvd.DistributedOptimizer(setup.sgd()),  # compile() puts the loss scaling around it
        hvd.DistributedOptimizer(scale(setup.sgd())),
    ):
        model = mixed_fit(optimizer, poison=True)
        weights = model.get_weights()
        assert all(np.isfinite(values).all() for values in weights), weights
        setup.assert_same_everywhere(weights)
        assert type(model.optimizer).__name__.startswith("LossScaleOptimizer")
    passes = hvd.DistributedOptimizer(scale(setup.sgd()), backward_passes_per_step=2)
    setup.assert_same_everywhere(mixed_fit(passes, poison=True).get_weights())


def check_first_step_within_a_loss_scale_optimizer() -> None:
    """Eagerly and in a loop of one's own the first apply() builds the optimizer."""
    if setup.LEGACY:
        skip("legacy Keras has another way of building")
    scale = keras.optimizers.LossScaleOptimizer
    alone = loop(scale(setup.sgd()), True, compiled=False)
    for compiled in (False, True):
        model = loop(scale(hvd.DistributedOptimizer(setup.sgd())), False, compiled)
        setup.assert_same_everywhere(model.get_weights())
        setup.assert_same(model, alone)
    passes = scale(hvd.DistributedOptimizer(setup.sgd(), backward_passes_per_step=2))
    model = loop(passes, False, compiled=False)
    setup.assert_same_everywhere(model.get_weights())
    assert int(passes.iterations) == setup.STEPS
    # The ranks differ in what is finite: in the first step, too, they skip together.
    setup.assert_same_everywhere(
        mixed_fit(hvd.DistributedOptimizer(setup.sgd()), True, poisoned=0, run_eagerly=True).get_weights()
    )
