"""Elastic training with Keras: `@hvd.elastic.run`, its state, and callbacks for model.fit()."""

from __future__ import annotations

from typing import Any

import keras

from horovod._keras.elastic import classes_for
from horovod.common.elastic import ObjectState, State

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "ObjectState",
    "State",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

_classes = classes_for(keras, __name__)
CommitStateCallback: Any = _classes.CommitStateCallback
KerasState: Any = _classes.KerasState
UpdateBatchStateCallback: Any = _classes.UpdateBatchStateCallback
UpdateEpochStateCallback: Any = _classes.UpdateEpochStateCallback
run: Any = _classes.run
