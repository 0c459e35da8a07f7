"""KerasState and the callbacks of elastic training, among ranks that stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from keras_setup import STEPS, X, Y, assert_same_everywhere, hvd, keras, share, small_model
from util_expect import raises

from horovod.errors import HorovodInternalError, HostsUpdatedInterrupt
from horovod.runner.elastic.worker import HostUpdateResult


def compiled(seed: int = 3) -> Any:
    """A model whose optimizer has made no step."""
    model = small_model()
    model.set_weights([weight + seed for weight in model.get_weights()])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01 * (1 + hvd.rank()))), "mse")
    return model


def fit(model: Any, callbacks: list[Any], epochs: int = 1, **options: Any) -> Any:
    return model.fit(
        share(X),
        share(Y),
        batch_size=len(share(X)) // STEPS,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
        **options,
    )


def values(model: Any) -> list[Any]:
    own = model.optimizer.variables
    own = own() if callable(own) and not isinstance(own, list) else own
    return [np.array(each) for each in [*model.get_weights(), *map(as_numpy, own)]]


def as_numpy(variable: Any) -> Any:
    return keras.ops.convert_to_numpy(variable) if hasattr(keras, "ops") else variable.numpy()


def check_the_model_must_be_built() -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    with raises(ValueError, "must be built"):
        hvd.elastic.KerasState(model)


def check_sync_gives_all_the_same_and_saves_it() -> None:
    model = compiled(seed=hvd.rank())
    state = hvd.elastic.KerasState(model, epoch=hvd.rank(), batch=0)
    assert state.model is model and state.optimizer is model.optimizer
    state.sync()
    assert state.epoch == 0
    synced = values(model)
    assert len(synced) > 2 * len(model.get_weights()), "the optimizer has its variables before the first step"
    assert_same_everywhere(synced)
    fit(model, [])
    assert any((a != b).any() for a, b in zip(values(model), synced, strict=True))
    for _ in range(2):
        state.epoch = 5
        state.restore()
        assert state.epoch == 0
        for ours, theirs in zip(values(model), synced, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        fit(model, [])


def check_learning_rate() -> None:
    """A new rank has another rate than callbacks have given the others."""
    kinds = [keras.optimizers, *([] if hasattr(keras, "ops") else [keras.optimizers.legacy])]
    for kind in kinds:
        model = small_model()
        optimizer = hvd.DistributedOptimizer(kind.Adam(0.01 * (1 + hvd.rank())))
        model.compile(optimizer, "mse", run_eagerly=True)
        state = hvd.elastic.KerasState(model)
        state.sync()
        assert abs(float(as_numpy(optimizer.learning_rate)) - 0.01) < 1e-7
        optimizer.learning_rate.assign(0.5)
        state.restore()
        assert abs(float(as_numpy(optimizer.learning_rate)) - 0.01) < 1e-7
        assert_same_everywhere(values(model))


def check_a_state_of_another_model_is_named() -> None:
    if hvd.rank() == 0:
        state = hvd.elastic.KerasState(compiled())
    else:
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(7)])
        model.compile("adam", "mse")
        state = hvd.elastic.KerasState(model)
    error: Exception | None = None
    try:
        state._check_like_source(state._shared_variables(), state._read(state._shared_variables()))
    except ValueError as caught:
        error = caught
    assert (error is None) == (hvd.rank() == 0)
    assert hvd.rank() == 0 or "rank 0 has" in str(error), error


class Committed(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts the batches that Keras has run."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0
        self.epochs = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs += 1


def callbacks_of(state: Any, order: str, every: int = 1) -> list[Any]:
    kinds: dict[str, Callable[[], Any]] = {
        "c": lambda: hvd.elastic.CommitStateCallback(state, batches_per_commit=every),
        "b": lambda: hvd.elastic.UpdateBatchStateCallback(state),
        "e": lambda: hvd.elastic.UpdateEpochStateCallback(state),
    }
    return [kinds[letter]() for letter in order]


def check_any_order_commits_the_same() -> None:
    for order in ("cbe", "bec", "ecb"):
        model = compiled()
        state = hvd.elastic.KerasState(model, epoch=0, batch=0)
        seen: list[tuple[int, int]] = []
        state.commit = lambda state=state, seen=seen: seen.append((state.epoch, state.batch))
        fit(model, callbacks_of(state, order), epochs=2)
        first = [(0, batch) for batch in range(STEPS)]
        assert seen == [*first, (1, 0), *[(1, batch) for _, batch in first], (2, 0)], (order, seen)


def check_commits_as_often_as_told() -> None:
    model = compiled()
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    seen: list[int] = []
    state.commit = lambda: seen.append(state.batch)
    fit(model, callbacks_of(state, "cb", every=3))
    assert seen == [2, 0]


class Failing(keras.callbacks.Callback):  # type: ignore[misc]
    """Fails once, after so many batches."""

    def __init__(self, after: int, error: Exception | None) -> None:
        super().__init__()
        self.after = after
        self.error = error

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.after -= 1
        if self.after < 0 and self.error is not None:
            error, self.error = self.error, None
            raise error


def trained(failing: Any, order: str = "cbe", epochs: int = 3) -> tuple[Any, Committed, Any]:
    """A training that is interrupted and goes on, as `run` makes it go on."""
    keras.utils.set_random_seed(5)
    model = compiled()
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    state.sync()
    counts = Committed()
    while state.epoch < epochs:
        try:
            fit(model, [failing, counts, *callbacks_of(state, order)], epochs=epochs - state.epoch)
        except HorovodInternalError:
            state.restore()
        except HostsUpdatedInterrupt:
            pass
    return model, counts, state


def check_an_epoch_after_a_failure_is_shortened() -> None:
    """In the original it was not, and one batch was done twice."""
    whole, counts, _ = trained(Failing(100, None))
    assert (counts.batches, counts.epochs) == (3 * STEPS, 3)
    for order in ("cbe", "ebc"):
        model, counts, state = trained(Failing(STEPS + 2, HorovodInternalError("lost")), order)
        assert (counts.batches, counts.epochs) == (3 * STEPS, 3), order
        assert (state.epoch, state.batch) == (3, 0)
    # Data begins anew in a call of fit(), so that weights can't be compared here; the number of steps can.
    assert int(as_numpy(model.optimizer.iterations)) == int(as_numpy(whole.optimizer.iterations)) == 3 * STEPS


def check_an_interrupt_at_the_last_batch_repeats_nothing() -> None:
    for batches in (STEPS, 3 * STEPS):
        keras.utils.set_random_seed(5)
        model = compiled()
        state = hvd.elastic.KerasState(model, epoch=0, batch=0)
        state.sync()
        total = 0

        class Notified(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                nonlocal total
                total += 1
                if total == batches:  # noqa: B023
                    state.on_hosts_updated(1, HostUpdateResult.added)  # noqa: B023

        while state.epoch < 3:
            try:
                fit(model, [Notified(), *callbacks_of(state, "cbe")], epochs=3 - state.epoch)
            except HostsUpdatedInterrupt:
                assert state.batch == STEPS - 1
        assert int(as_numpy(model.optimizer.iterations)) == 3 * STEPS
        assert (state.epoch, state.batch) == (3, 0)


def check_another_callback_may_still_stop() -> None:
    """Early stopping in the epoch that was shortened."""

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = True

    model = compiled()
    state = hvd.elastic.KerasState(model, epoch=0, batch=1)
    counts = Committed()
    fit(model, [Stop(), counts, hvd.elastic.UpdateBatchStateCallback(state)], epochs=3)
    assert (counts.batches, counts.epochs) == (STEPS - 1, 1)


def check_variables_are_broadcast_again_in_another_world() -> None:
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model = compiled()
    fit(model, [callback])
    assert callback.broadcast_done
    hvd.shutdown()
    assert not callback.broadcast_done
    hvd.init()
    assert not callback.broadcast_done
    fit(model, [callback])
    assert callback.broadcast_done
