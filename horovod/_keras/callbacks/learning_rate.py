"""Learning rates that change in the course of a training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from horovod._keras.callbacks.base import HorovodCallback
from horovod.common import basics

Multiplier = float | Callable[[float], float]


@dataclass(eq=False, repr=False)
class LearningRateSchedule(HorovodCallback):
    """Sets the rate to initial_lr * multiplier(epoch) in
    the epochs from start_epoch up to end_epoch.

    multiplier: a function of the epoch, or a number m, which means m ** (epoch - start_epoch).
    end_epoch: the first epoch without it; None: to the end.
    staircase: change at the start of an epoch only; else at each batch, with fractions of epochs.
    momentum_correction: scale what momentum has gathered when the rate changes.
    steps_per_epoch: batches in an epoch, for staircase=False; found out if Keras knows it.
    """

    initial_lr: float
    multiplier: Multiplier
    start_epoch: int = 0
    end_epoch: int | None = None
    staircase: bool = True
    momentum_correction: bool = True
    steps_per_epoch: int | None = None

    def __post_init__(self) -> None:
        super().__init__()
        if self.initial_lr is None:
            raise ValueError("initial_lr is needed: the rate that the multiplier multiplies")
        if not callable(self.multiplier):
            factor, start = float(self.multiplier), self.start_epoch
            self.multiplier = lambda epoch: factor ** (epoch - start)
        self.current_epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Finds the number of batches in an epoch. ValueError if there is no way to know."""
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._detected_steps()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Takes note."""
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate."""
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if self.staircase and batch == 0:
            self._adjust(epoch)
        elif not self.staircase:
            self._adjust(epoch + float(batch) / (self.steps_per_epoch or 1))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the rate to the metrics."""
        if logs is not None:
            logs["lr"] = self._rate()

    def _adjust(self, epoch: float) -> None:
        assert callable(self.multiplier)
        before, after = self._rate(), float(self.initial_lr) * self.multiplier(epoch)
        rate = self.model.optimizer.learning_rate
        held = getattr(_innermost(self.model.optimizer), "_learning_rate", None)
        if isinstance(held, self.keras.optimizers.schedules.LearningRateSchedule) or not hasattr(
            rate, "assign"
        ):
            raise ValueError(
                f"the optimizer's learning rate is {held or rate!r}, which {type(self).__name__} can't "
                "change: make the optimizer with a number"
            )
        rate.assign(after)
        if self.momentum_correction and before > 0.0 and after != before:
            # A momentum of `momentum * after / before` for one batch, as in
            # arxiv.org/abs/1706.02677. Scaling what it is applied to gives the same, and also where
            # the momentum is a constant of a graph.
            for gathered in _momenta(self.model):
                gathered.assign(gathered * (after / before))

    def _rate(self) -> float:
        rate = self.model.optimizer.learning_rate
        if self.is_legacy:
            return float(np.asarray(self.keras.backend.get_value(rate)))
        return float(self.keras.ops.convert_to_numpy(rate))

    def _detected_steps(self) -> int:
        params = self.params or {}
        if params.get("steps"):
            return int(params["steps"])
        if params.get("samples") and params.get("batch_size"):
            return -(-int(params["samples"]) // int(params["batch_size"]))
        raise ValueError(
            "Keras does not know how many batches an epoch has: give steps_per_epoch to "
            f"{type(self).__name__} or to model.fit()"
        )


class LearningRateWarmup(LearningRateSchedule):
    """Raises the rate linearly from initial_lr / size to
    initial_lr, batch by batch in the first epochs."""

    def __init__(
        self,
        initial_lr: float | None = None,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """initial_lr: the rate to reach; without it the
        optimizer's at the start of the training."""

        def multiplier(epoch: float) -> float:
            # One batch on, so that the last batch of the warm-up reaches initial_lr.
            progress = min((epoch + 1.0 / (self.steps_per_epoch or 1)) / warmup_epochs, 1.0)
            size = basics.size()
            return (progress * (size - 1) + 1) / size

        super().__init__(
            initial_lr or 0.0,
            multiplier,
            end_epoch=warmup_epochs,  # type: ignore[arg-type]  # may be a fraction
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose
        self._from_optimizer = initial_lr is None

    def on_train_begin(self, logs: Any = None) -> None:
        """Also takes the optimizer's rate if there was none given."""
        super().on_train_begin(logs)
        if self._from_optimizer:
            self.initial_lr = self._rate()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Also says when the warm-up is over, once for all ranks."""
        super().on_epoch_end(epoch, logs)
        is_last = self.end_epoch is not None and epoch == math.ceil(self.end_epoch) - 1
        if self.verbose > 0 and is_last and basics.rank() == 0:
            print(f"\nEpoch {epoch + 1}: finished the gradual learning rate warmup to {self._rate():g}.")


def _innermost(optimizer: Any) -> Any:
    """The optimizer within a loss-scale optimizer."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _momenta(model: Any) -> list[Any]:
    """What momentum has gathered for each variable, in optimizers that have one."""
    optimizer = _innermost(model.optimizer)
    if getattr(optimizer, "momentum", None) is None:
        return []
    for name in ("momentums", "_momentums"):
        if isinstance(gathered := getattr(optimizer, name, None), list | tuple):
            return [variable for variable in gathered if variable is not None]
    if hasattr(optimizer, "get_slot_names") and "momentum" in optimizer.get_slot_names():
        return [optimizer.get_slot(variable, "momentum") for variable in model.trainable_variables]
    return []
