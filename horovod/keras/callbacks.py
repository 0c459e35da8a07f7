"""Callbacks for model.fit()."""

from __future__ import annotations

from typing import Any

import keras

from horovod._keras.callbacks.classes import classes_for

_classes = classes_for(keras, __name__)
__all__ = list(vars(_classes))
BestModelCheckpoint: Any = _classes.BestModelCheckpoint
BroadcastGlobalVariablesCallback: Any = _classes.BroadcastGlobalVariablesCallback
LearningRateScheduleCallback: Any = _classes.LearningRateScheduleCallback
LearningRateWarmupCallback: Any = _classes.LearningRateWarmupCallback
MetricAverageCallback: Any = _classes.MetricAverageCallback
