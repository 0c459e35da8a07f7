"""What a distributed optimizer is: names, configuration, saving and loading, errors."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import keras_setup as setup
import numpy as np
from keras_setup import hvd, keras
from util_expect import raises, skip


def check_class() -> None:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.03, beta_1=0.8))
    assert type(optimizer).__name__ == "Adam" and isinstance(optimizer, keras.optimizers.Adam)
    assert type(optimizer) is not keras.optimizers.Adam
    assert keras.optimizers.Adam in type(optimizer).__mro__
    config = optimizer.get_config()
    assert config["beta_1"] == 0.8 and abs(config["learning_rate"] - 0.03) < 1e-6
    assert keras.optimizers.serialize(optimizer)["class_name"] == "Adam"
    again = type(optimizer).from_config(config)
    assert again.get_config() == config
    setup.assert_same(
        setup.trained_together(again, run_eagerly=True), setup.trained_together(optimizer, run_eagerly=True)
    )


def check_variables_as_property_and_call() -> None:
    optimizers = [keras.optimizers.Adam(0.1), *([keras.optimizers.legacy.Adam(0.1)] if setup.LEGACY else [])]
    for plain in optimizers:
        optimizer = hvd.DistributedOptimizer(plain)
        setup.trained_together(optimizer, run_eagerly=True)
        assert len(optimizer.variables) == len(optimizer.variables()) > 8
        for one, other in zip(optimizer.variables, optimizer.variables(), strict=True):
            assert one is other


def check_older_kind_of_optimizers() -> None:
    if not setup.LEGACY:
        skip("only legacy Keras has them")
    alone = setup.trained_together(hvd.DistributedOptimizer(setup.sgd()))
    old = setup.trained_together(hvd.DistributedOptimizer(keras.optimizers.legacy.SGD(0.1)))
    setup.assert_same(old, alone)
    passes = hvd.DistributedOptimizer(keras.optimizers.legacy.SGD(0.1), backward_passes_per_step=2)
    setup.assert_same_everywhere(setup.trained_together(passes).get_weights())


def check_helper_of_several_passes() -> None:
    """As programs for legacy Keras look at it."""
    if not setup.LEGACY:
        skip("only legacy Keras has them")
    import tensorflow as tf

    own = np.array([2.0 * hvd.rank(), 1.0])
    for kind, aggregated in (
        (keras.optimizers.SGD, {"skip_gradients_aggregation": True}),
        (keras.optimizers.legacy.SGD, {"experimental_aggregate_gradients": False}),
    ):
        assert hvd.DistributedOptimizer(kind(1.0))._agg_helper is None
        for compiled in (False, True):
            w = tf.Variable([0.0, 0.0])
            optimizer = hvd.DistributedOptimizer(
                kind(1.0), backward_passes_per_step=3, average_aggregated_gradients=True
            )
            helper = optimizer._agg_helper
            assert helper.backward_passes_per_step == 3 and int(helper.counter) == 0

            def step(w: Any, optimizer: Any, kwargs: Any, factor: Any) -> None:
                pairs = optimizer._compute_gradients(lambda: tf.reduce_sum(w * own * factor), [w])
                optimizer.apply_gradients([(2 * gradient, v) for gradient, v in pairs], **kwargs)

            go = tf.function(step) if compiled else step
            for passes in range(1, 8):
                go(w, optimizer, aggregated, tf.constant(1.0))
                np.testing.assert_allclose(w, [-2.0 * (passes // 3), -2.0 * (passes // 3)])
                assert int(helper.counter) == passes % 3
                assert int(optimizer.iterations) == passes
                np.testing.assert_allclose(helper.locally_aggregated_grads[0], passes % 3 * own)
            # What is not finite leaves nothing behind in the sums.
            for _ in range(2):
                go(w, optimizer, aggregated, tf.constant(np.inf, tf.float32))
            assert not np.isfinite(w.numpy()).all()
            np.testing.assert_allclose(helper.locally_aggregated_grads[0], [0.0, 0.0])


def check_whole_batches_on_one_rank() -> None:
    """TensorFlow knows more of the shapes there; it must not round in another way because of that."""
    keras.utils.set_random_seed(4)
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((3,), dtype="int32"), layers.Embedding(20, 4), layers.Flatten(), layers.Dense(1)]
    )
    optimizer = hvd.DistributedOptimizer(keras.optimizers.RMSprop(0.01), sparse_as_dense=True)
    model.compile(optimizer, "mse")
    rows = 32 if hvd.rank() == 0 else 30
    x = np.random.default_rng(hvd.rank()).integers(0, 20, (rows, 3)).astype("int32")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(x, x.mean(axis=1), batch_size=8, epochs=2, callbacks=callbacks, verbose=0)
    for value in model.get_weights():
        assert np.array_equal(hvd.broadcast(value, 0), value)


def check_passes_of_gradients_computed_elsewhere() -> None:
    """Programs for legacy Keras hand them to the helper or what calls it, and apply them in a function."""
    if not setup.LEGACY:
        skip("only legacy Keras has them")
    import tensorflow as tf

    gradients = [tf.constant([float(hvd.rank())])]
    for kind, aggregated in (
        (keras.optimizers.SGD, {"skip_gradients_aggregation": True}),
        (keras.optimizers.legacy.SGD, {"experimental_aggregate_gradients": False}),
        (keras.optimizers.SGD, {}),
        (keras.optimizers.legacy.SGD, {}),
    ):
        for by_helper, k in ((True, 3), (False, 3), (False, 1)):
            w = tf.Variable([0.0])
            optimizer = hvd.DistributedOptimizer(kind(1.0), backward_passes_per_step=k)
            reduce = optimizer._agg_helper.compute_gradients if by_helper else optimizer._allreduce

            @tf.function
            def go(given: Any, w: Any = w, optimizer: Any = optimizer, kwargs: Any = aggregated) -> None:
                optimizer.apply_gradients(zip(given, [w], strict=True), **kwargs)

            for passes in range(1, 8):
                go(reduce(gradients, [w]))
                np.testing.assert_allclose(w, [-0.5 * (passes // k * k)])
                assert int(optimizer.iterations) == passes


def check_errors() -> None:
    for op in (2, 3, 4, 5):
        with raises(ValueError, "hvd.Average or hvd.Sum"):
            hvd.DistributedOptimizer(setup.sgd(), op=op)
    with raises(ValueError, "backward_passes_per_step"):
        hvd.DistributedOptimizer(setup.sgd(), backward_passes_per_step=0)
    with raises(ValueError, "gradient_predivide_factor"):
        hvd.DistributedOptimizer(setup.sgd(), op=hvd.Sum, gradient_predivide_factor=2.0)
    with raises(ValueError, "groups"):
        hvd.DistributedOptimizer(setup.sgd(), groups=-1)
    with raises(ValueError, "local_layers"):
        hvd.PartialDistributedOptimizer(setup.sgd(), local_layers=["dense"])
    with raises(TypeError, "Keras optimizer"):
        hvd.DistributedOptimizer(object())


def saved(path: Path, distributed: bool) -> Any:
    plain = keras.optimizers.Adam(0.01)
    model = setup.trained_together(hvd.DistributedOptimizer(plain) if distributed else plain)
    model.save(path)
    return model


def train_more(model: Any) -> Any:
    model.fit(setup.share(setup.X), setup.share(setup.Y), batch_size=8, verbose=0, shuffle=False)
    return model


def check_saving_and_loading() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for ending in (".keras", ".h5"):
            path = Path(directory, f"model{ending}")
            model = saved(path, distributed=True)
            # Without Horovod: a plain optimizer with the state.
            plain = keras.models.load_model(path)
            assert type(plain.optimizer) is type(keras.optimizers.Adam(0.1)), type(plain.optimizer)
            # With it: goes on exactly as if it had not been saved.
            loaded = hvd.load_model(path)
            assert type(loaded.optimizer).__name__ == "Adam"
            if setup.LEGACY or ending == ".keras":  # Keras 3 itself does not restore the state from .h5
                assert int(plain.optimizer.iterations) == 4
                assert len(loaded.optimizer.variables) == len(model.optimizer.variables)
                setup.assert_same(train_more(loaded), train_more(model), tolerance=1e-6)
            setup.assert_same_everywhere(loaded.get_weights())
            path.unlink()
        # Saved without Horovod
        path = Path(directory, "plain.keras")
        saved(path, distributed=False)
        loaded = hvd.load_model(path, compression=hvd.Compression.fp16)
        hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        before = loaded.get_weights()
        loaded.set_weights([np.asarray(hvd.broadcast(weight, 0)) for weight in before])
        for variable in loaded.optimizer.variables:
            variable.assign(hvd.broadcast(keras_value(variable), 0))
        setup.assert_same_everywhere(train_more(loaded).get_weights())


def keras_value(variable: Any) -> Any:
    return variable.numpy() if setup.LEGACY else keras.ops.convert_to_numpy(variable)


class MyOptimizer(keras.optimizers.SGD):  # type: ignore[misc]
    """One that Keras does not know."""


def check_loading_custom_optimizers() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "custom.keras")
        setup.trained_together(hvd.DistributedOptimizer(MyOptimizer(0.1))).save(path)
        loaded = hvd.load_model(path, custom_optimizers=[MyOptimizer])
        assert isinstance(loaded.optimizer, MyOptimizer) and type(loaded.optimizer) is not MyOptimizer
        loaded = hvd.load_model(path, custom_objects={"MyOptimizer": MyOptimizer})
        assert isinstance(loaded.optimizer, MyOptimizer)
        setup.assert_same_everywhere(train_more(loaded).get_weights())


def check_a_model_without_optimizer_loads() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "model.keras")
        model = setup.small_model()
        model.save(path)
        setup.assert_same(hvd.load_model(path), model)
