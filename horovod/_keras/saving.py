"""Models that were saved with a distributed optimizer, or without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from horovod._keras.optimizer import distribute
from horovod.common.distributed_options import DistributedOptions


def load_model(
    keras: Any,
    filepath: Any,
    custom_optimizers: Iterable[type] | None,
    custom_objects: Mapping[str, Any] | None,
    compression: Any,
) -> Any:
    """The saved model; its optimizer has the state it was saved with and is distributed."""
    objects = {optimizer.__name__: optimizer for optimizer in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects or None)
    if getattr(model, "optimizer", None) is not None:
        distribute(model.optimizer, DistributedOptions(compression=compression))
    return model
