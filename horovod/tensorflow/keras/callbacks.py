"""Callbacks for model.fit()."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._keras.callbacks.classes import classes_for

_classes = classes_for(tf.keras, __name__)
__all__ = list(vars(_classes))
BroadcastGlobalVariablesCallback: Any = _classes.BroadcastGlobalVariablesCallback
LearningRateScheduleCallback: Any = _classes.LearningRateScheduleCallback
LearningRateWarmupCallback: Any = _classes.LearningRateWarmupCallback
MetricAverageCallback: Any = _classes.MetricAverageCallback


_Checkpoint: Any = _classes.BestModelCheckpoint


class BestModelCheckpoint(_Checkpoint):  # type: ignore[misc]
    __doc__ = _Checkpoint.__doc__

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        # In another order than horovod.keras has them, as in the original
        super().__init__(monitor, verbose, mode, save_freq, save_weights_only)
