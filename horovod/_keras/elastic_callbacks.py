"""The callbacks of elastic training without their base class, which is that of the user's Keras.

They may stand in any order in the list: what is committed is what the others have recorded.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from horovod._keras.callbacks.base import HorovodCallback


class _Completed:
    """In the place of `model.stop_training = True`, so that it can be told from another callback's."""

    def __bool__(self) -> bool:
        return True


class _Recorder(HorovodCallback):
    """Writes into the state how far the training is."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_begin(self, logs: Any = None) -> None:
        """Makes itself known to CommitStateCallback."""
        if not hasattr(self.state, "_recorders"):
            self.state._recorders = WeakSet()
        self.state._recorders.add(self)

    def record_batch(self, batch: int) -> None:
        """Called at least once at the end of each batch."""

    def record_epoch(self, epoch: int) -> None:
        """Called at least once at the end of each epoch."""

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Records the batch."""
        self.record_batch(batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Records the epoch."""
        self.record_epoch(epoch)


class CommitStateCallbackImpl(HorovodCallback):
    """Commits the state after every `batches_per_commit` batches, and at the end of each epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        """Counts from the beginning."""
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commits, if so many batches have passed."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            for recorder in self._recorders():
                recorder.record_batch(batch)
            self.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commits."""
        for recorder in self._recorders():
            recorder.record_epoch(epoch)
        self.commit()

    def commit(self) -> None:
        """What is done then: `state.commit()`."""
        self.state.commit()

    def _recorders(self) -> list[_Recorder]:
        """Those of this call of fit(), in which all callbacks share the same parameters."""
        return [each for each in getattr(self.state, "_recorders", ()) if each.params is self.params]


class UpdateBatchStateCallbackImpl(_Recorder):
    """Sets `state.batch` to the number of the last batch in the epoch, 0 at its end.

    The first epoch after the ranks have changed is shortened by the batches that were done before.
    """

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self.steps_per_epoch: int | None = None
        self._first = 0  # batches of this epoch that were done before
        self._repeats = False
        self._mark = _Completed()

    def on_train_begin(self, logs: Any = None) -> None:
        """Forgets the length of the epochs."""
        super().on_train_begin(logs)
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Finds out how much of the epoch is left."""
        self._first = self._done_before()
        self._repeats = False
        if self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params["steps"]
            self.params["steps"] = max(self.steps_per_epoch - self._first, 1)
            # Complete but for its end, and Keras knows no epoch without a batch.
            self._repeats = self._first >= self.steps_per_epoch

    def record_batch(self, batch: int) -> None:
        """The number of the batch, counted from the beginning of the epoch."""
        if self._repeats:
            self.state.restore()  # as if the batch had not been
        else:
            self.state.batch = self._first + batch
            self._set_done(self._first + batch + 1)

    def record_epoch(self, epoch: int) -> None:
        """The next epoch starts with its first batch."""
        self._repeats = False
        self.state.batch = 0
        self._set_done(0)

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends a shortened epoch in time: Keras itself does not heed `params["steps"]`."""
        super().on_batch_end(batch, logs)
        steps = self.steps_per_epoch
        if self._first and steps and self._first + batch + 1 >= steps and not self.model.stop_training:
            self.model.stop_training = self._mark

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Only this epoch was to be shortened."""
        super().on_epoch_end(epoch, logs)
        if self.model is not None and self.model.stop_training is self._mark:
            self.model.stop_training = False

    def _done_before(self) -> int:
        """How many batches of the epoch are in the state: it has the number of the last one, or none."""
        batch: int = self.state.batch
        exact: int | None = getattr(self.state, "_batches_done", None)
        return exact if exact is not None and exact - batch in (0, 1) else batch

    def _set_done(self, number: int) -> None:
        if hasattr(self.state, "_batches_done"):
            self.state._batches_done = number


class UpdateEpochStateCallbackImpl(_Recorder):
    """Sets `state.epoch` to the number of epochs that are complete; call
    `fit(epochs=total - state.epoch)`."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self.initial_epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Counts from the epoch of the state."""
        super().on_train_begin(logs)
        self.initial_epoch = self.state.epoch

    def record_epoch(self, epoch: int) -> None:
        """One more is complete."""
        self.state.epoch = self.initial_epoch + epoch + 1
