"""Callbacks for model.fit()."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._keras.callbacks.best_model import BestModel
from horovod._keras.callbacks.broadcast import Broadcast
from horovod._keras.callbacks.learning_rate import LearningRateSchedule, LearningRateWarmup
from horovod._keras.callbacks.metric_average import MetricAverage

keras: Any = tf.keras

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(Broadcast, keras.callbacks.Callback):  # type: ignore[misc]
    __doc__ = Broadcast.__doc__
    keras = keras


class MetricAverageCallback(MetricAverage, keras.callbacks.Callback):  # type: ignore[misc]
    __doc__ = MetricAverage.__doc__
    keras = keras


class LearningRateScheduleCallback(LearningRateSchedule, keras.callbacks.Callback):  # type: ignore[misc]
    __doc__ = LearningRateSchedule.__doc__
    keras = keras


class LearningRateWarmupCallback(LearningRateWarmup, keras.callbacks.Callback):  # type: ignore[misc]
    __doc__ = LearningRateWarmup.__doc__
    keras = keras


class BestModelCheckpoint(BestModel, keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    __doc__ = BestModel.__doc__
    keras = keras

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
