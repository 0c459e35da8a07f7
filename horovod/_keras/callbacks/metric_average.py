"""The metrics of all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod import numpy as hvd
from horovod._keras.callbacks.base import HorovodCallback
from horovod.common import metrics


class MetricAverage(HorovodCallback):
    """At the end of an epoch every metric becomes its average over the ranks.

    Callbacks that come later in the list see the averages: put it before ReduceLROnPlateau,
    TensorBoard and others that use metrics. Each rank must have the same metrics. The dashboard and
    hvd.metrics() show the averages, too.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Overwrites the entries of `logs`."""
        if not logs:
            return
        names = sorted(logs)
        everyones = hvd.allgather_object(names, name="MetricAverageCallback.names")
        if any(other != names for other in everyones):
            raise ValueError(
                f"the ranks have different metrics, which can't be averaged: {everyones}; give each rank "
                "validation data, and put callbacks that add metrics after MetricAverageCallback"
            )
        averages = hvd.grouped_allreduce(
            [np.asarray(logs[name], np.float64) for name in names],
            name="MetricAverageCallback",
            op=hvd.Average,
        )
        for name, average in zip(names, averages, strict=True):
            logs[name] = float(average) if average.ndim == 0 else average
        # "samples" would count what has been processed.
        metrics.observe(
            **{name: logs[name] for name in names if isinstance(logs[name], float) and name != "samples"}
        )
