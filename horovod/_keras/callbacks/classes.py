"""The callbacks that users see, for one Keras."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from horovod._keras.callbacks.best_model import BestModel
from horovod._keras.callbacks.broadcast import Broadcast
from horovod._keras.callbacks.learning_rate import LearningRateSchedule, LearningRateWarmup
from horovod._keras.callbacks.metric_average import MetricAverage


def classes_for(keras: Any, module: str) -> SimpleNamespace:
    """Classes derived from ours and from those of this Keras; `module` is where users find them."""
    plain, checkpoint = keras.callbacks.Callback, keras.callbacks.ModelCheckpoint
    bases: dict[str, tuple[type, type]] = {
        "BestModelCheckpoint": (BestModel, checkpoint),
        "BroadcastGlobalVariablesCallback": (Broadcast, plain),
        "LearningRateScheduleCallback": (LearningRateSchedule, plain),
        "LearningRateWarmupCallback": (LearningRateWarmup, plain),
        "MetricAverageCallback": (MetricAverage, plain),
    }
    members = {"keras": keras, "__module__": module}
    return SimpleNamespace(
        **{name: type(name, pair, {**members, "__doc__": pair[0].__doc__}) for name, pair in bases.items()}
    )
