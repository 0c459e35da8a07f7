"""The callbacks in model.fit()."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from keras_setup import LEGACY, STEPS, X, Y, assert_same_everywhere, hvd, keras, sgd, share, small_model
from util_expect import raises, skip

from horovod.common.metrics import metrics


class Recorder(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes what a program can see at each batch and epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []
        self.logs: list[dict[str, float]] = []
        self.weights: list[Any] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.rates.append(float(np.asarray(self.model.optimizer.learning_rate)))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.weights.append(self.model.get_weights())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.logs.append(dict(logs or {}))


def fit(
    callbacks: list[Any], optimizer: Any = None, epochs: int = 1, model: Any = None, **options: Any
) -> Any:
    model = small_model() if model is None else model
    model.compile(optimizer or hvd.DistributedOptimizer(sgd()), "mse", run_eagerly=True)
    options = {"batch_size": 8, "verbose": 0, "shuffle": False, **options}
    model.fit(share(X), share(Y), epochs=epochs, callbacks=callbacks, **options)
    return model


def check_they_are_keras_callbacks() -> None:
    for callback in (
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5),
        hvd.callbacks.LearningRateWarmupCallback(0.1),
        hvd.callbacks.BestModelCheckpoint(),
    ):
        assert isinstance(callback, keras.callbacks.Callback)


def check_broadcast_after_the_first_batch() -> None:
    model = small_model()
    model.set_weights([weight + hvd.rank() for weight in model.get_weights()])
    recorder = Recorder()
    # In Keras 3 the rate is one of the optimizer's variables.
    adam = keras.optimizers.Adam(0.01 if LEGACY else 0.01 * (hvd.rank() + 1))
    fit(
        [hvd.callbacks.BroadcastGlobalVariablesCallback(0), recorder],
        hvd.DistributedOptimizer(adam),
        model=model,
    )
    assert_same_everywhere(recorder.weights[0])
    assert_same_everywhere(model.get_weights())
    rate = float(np.asarray(model.optimizer.learning_rate))
    assert abs(rate - 0.01) < 1e-7, rate
    assert_same_everywhere([np.asarray(v) for v in model.optimizer.variables])


def check_broadcast_leaves_local_variables() -> None:
    model = small_model()
    bias = model.trainable_variables[1]
    optimizer = hvd.DistributedOptimizer(sgd(0.0))
    start = float(hvd.rank() + 1)
    bias.assign(np.full(4, start, "float32"))
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[bias])
    fit([callback], optimizer, model=model)
    np.testing.assert_array_equal(np.asarray(model.get_weights()[1]), start)
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=bias)
    callback.register_local_var(model.trainable_variables[0])
    fit([callback], optimizer, model=model)
    np.testing.assert_array_equal(np.asarray(model.get_weights()[1]), start)
    with raises(ValueError, "local_variables"):
        hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=["bias"])
    with raises(ValueError, "local_variables"):
        hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=3)


def check_broadcast_leaves_random_generators() -> None:
    """Otherwise all ranks would drop the same."""
    if LEGACY:
        skip("legacy Keras has none among the variables")
    model = keras.Sequential([keras.layers.Dropout(0.5, seed=hvd.rank() + 1), small_model()])
    fit([hvd.callbacks.BroadcastGlobalVariablesCallback(0)], model=model)
    (state,) = (variable for variable in model.variables if not variable.trainable)
    assert int(np.asarray(state)[0]) == hvd.rank() + 1


def check_metric_average() -> None:
    class Mine(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["mine"] = hvd.rank() + epoch

    recorder = Recorder()
    before = Recorder()
    fit([Mine(), before, hvd.callbacks.MetricAverageCallback(), recorder], epochs=2)
    assert [logs["mine"] for logs in before.logs] == [hvd.rank(), hvd.rank() + 1]
    assert [logs["mine"] for logs in recorder.logs] == [0.5, 1.5]
    losses = [logs["loss"] for logs in recorder.logs]
    assert_same_everywhere(losses)
    assert losses != [logs["loss"] for logs in before.logs]
    assert metrics()["user"] == recorder.logs[-1]  # for the dashboard
    callback = hvd.callbacks.MetricAverageCallback()
    callback.on_epoch_end(0, {"samples": 8.0, "several": np.ones(2)})
    assert metrics()["samples_total"] == 0 and "several" not in metrics()["user"]


def check_metrics_that_differ() -> None:
    callback = hvd.callbacks.MetricAverageCallback()
    with raises(ValueError, "different metrics", "validation"):
        callback.on_epoch_end(0, {"loss": 1.0, **({"val_loss": 2.0} if hvd.rank() == 0 else {})})


def check_schedule() -> None:
    recorder = Recorder()
    constant = hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5, start_epoch=1, end_epoch=3)
    fit([constant, recorder], epochs=4)
    rates = np.array(recorder.rates).reshape(4, STEPS)
    np.testing.assert_allclose(rates, np.repeat([[0.1], [0.1], [0.05], [0.05]], STEPS, 1), rtol=1e-6)
    np.testing.assert_allclose([logs["lr"] for logs in recorder.logs], [0.1, 0.1, 0.05, 0.05], rtol=1e-6)

    recorder = Recorder()
    smooth = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 1 / (1 + epoch), staircase=False)
    fit([smooth, recorder], epochs=2)
    np.testing.assert_allclose(recorder.rates, 0.1 / (1 + np.arange(2 * STEPS) / STEPS), rtol=1e-6)

    recorder = Recorder()
    power = hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5, start_epoch=1, staircase=False)
    fit([power, recorder], epochs=2)
    np.testing.assert_allclose(
        recorder.rates, [0.1] * STEPS + list(0.1 * 0.5 ** (np.arange(STEPS) / STEPS)), rtol=1e-6
    )

    recorder = Recorder()
    stairs = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 1 / (1 + epoch))
    fit([stairs, recorder], epochs=2)
    np.testing.assert_allclose(recorder.rates, np.repeat([0.1, 0.05], STEPS), rtol=1e-6)


def check_schedule_errors() -> None:
    with raises(ValueError, "initial_lr"):
        hvd.callbacks.LearningRateScheduleCallback(None, 0.5)
    callback = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 1.0, staircase=False)
    callback.set_params({"steps": None})
    with raises(ValueError, "steps_per_epoch"):
        callback.on_train_begin()
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    with raises(ValueError, "can't change"):
        fit([hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5)], keras.optimizers.SGD(schedule))


def check_momentum_correction() -> None:
    """In the batch where the rate changes the momentum counts as momentum * new / old."""
    rows = 8

    def two_steps(second: float, correction: bool) -> Any:
        model = small_model()
        model.compile(sgd(0.1, momentum=0.9), "mse")
        callback = hvd.callbacks.LearningRateScheduleCallback(
            0.1, lambda epoch: second if epoch else 1.0, momentum_correction=correction
        )
        model.fit(
            X[:rows], Y[:rows], epochs=2, batch_size=rows, verbose=0, shuffle=False, callbacks=[callback]
        )
        return model.get_weights()

    # With velocity v = m v - lr g, both terms of the second step are 3 times as large: so is the step.
    first = small_model()
    first.compile(sgd(0.1), "mse")
    first.train_on_batch(X[:rows], Y[:rows])
    steps = [
        np.asarray(after[0]) - first.get_weights()[0]
        for after in (two_steps(1.0, True), two_steps(3.0, True), two_steps(3.0, False))
    ]
    np.testing.assert_allclose(steps[1], 3 * steps[0], rtol=1e-3, atol=1e-6)
    assert not np.allclose(steps[2], 3 * steps[0], rtol=1e-3, atol=1e-6)


def check_warmup() -> None:
    size, epochs = hvd.size(), 2
    progress = np.arange(1, epochs * STEPS + 1) / (epochs * STEPS)
    expected = [*(0.2 * (1 + progress * (size - 1)) / size), *[0.2] * STEPS]
    for callback in (
        hvd.callbacks.LearningRateWarmupCallback(0.2, warmup_epochs=epochs, verbose=1),
        hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=epochs),  # the optimizer's rate
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.2, warmup_epochs=epochs, steps_per_epoch=STEPS),
    ):
        recorder, printed = Recorder(), io.StringIO()
        with contextlib.redirect_stdout(printed):
            fit([callback, recorder], hvd.DistributedOptimizer(sgd(0.2)), epochs=epochs + 1)
        says_so = bool(callback.verbose) and hvd.rank() == 0
        assert printed.getvalue().count("Epoch 2: finished") == says_so, printed.getvalue()
        np.testing.assert_allclose(recorder.rates, expected, rtol=1e-5)
        assert abs(recorder.logs[-1]["lr"] - 0.2) < 1e-6


def check_warmup_that_ends_within_an_epoch() -> None:
    size, batches = hvd.size(), STEPS + STEPS // 2
    progress = np.arange(1, batches + 1) / batches
    recorder, printed = Recorder(), io.StringIO()
    callback = hvd.callbacks.LearningRateWarmupCallback(0.2, warmup_epochs=batches / STEPS, verbose=1)
    with contextlib.redirect_stdout(printed):
        fit([callback, recorder], hvd.DistributedOptimizer(sgd(0.2)), epochs=3)
    assert printed.getvalue().count("Epoch 2: finished") == (hvd.rank() == 0), printed.getvalue()
    expected = [*(0.2 * (1 + progress * (size - 1)) / size), *[0.2] * (3 * STEPS - batches)]
    np.testing.assert_allclose(recorder.rates, expected, rtol=1e-5)


def check_best_model() -> None:
    with tempfile.TemporaryDirectory() as directory:
        # The ModelCheckpoint of Keras 2.13 itself can't write .keras.
        for weights_only, ending in ((False, ".h5" if LEGACY else ".keras"), (True, ".weights.h5")):
            callback = hvd.callbacks.BestModelCheckpoint(monitor="loss", save_weights_only=weights_only)
            assert callback.save_best_only
            with raises(ValueError, "filepath"):
                fit([callback])
            path = Path(directory, f"best{ending}")
            callback.filepath = str(path)
            fit([callback], epochs=2)
            assert path.exists()
    # Positions: the third is another one in horovod.tensorflow.keras.
    if hvd.__name__ == "horovod.keras":
        given = hvd.callbacks.BestModelCheckpoint("loss", 0, "max", 7, True)
    else:
        given = hvd.callbacks.BestModelCheckpoint("loss", 0, True, "max", 7)
    assert given.save_weights_only is True and given.save_freq == 7


def check_program_of_the_manual() -> None:
    """The usual set of callbacks together, in the older form without initial_lr."""
    model = small_model()
    optimizer = hvd.DistributedOptimizer(sgd(0.01 * hvd.size()))
    model.compile(loss="mse", optimizer=optimizer, metrics=["mae"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=3, verbose=1),
    ]
    history = model.fit(
        share(X), share(Y), batch_size=8, epochs=4, callbacks=callbacks, verbose=0, validation_data=(X, Y)
    ).history
    assert set(history) >= {"loss", "mae", "val_loss", "val_mae", "lr"}, history
    assert_same_everywhere(model.get_weights())
    assert_same_everywhere([history["loss"], history["val_mae"]])


def check_callback_of_another_keras() -> None:
    if not LEGACY or importlib.util.find_spec("keras.ops") is None:
        skip("needs legacy Keras beside Keras 3")
    import horovod.keras

    with raises(ValueError, "TF_USE_LEGACY_KERAS=1"):
        horovod.keras.callbacks.MetricAverageCallback().set_model(small_model())
