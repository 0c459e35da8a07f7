"""Connects Keras's fit() with a Report: the bar and one line for each epoch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import keras
from training_report import Epoch, Report

import horovod.numpy as hvd


class FitReport(keras.callbacks.Callback):  # type: ignore[misc]
    """Put it after MetricAverageCallback, to see the averages. `images`: those of this rank in an epoch."""

    def __init__(self, report: Report, epochs: int, images: int) -> None:
        super().__init__()
        self._report, self._epochs, self._images = report, epochs, images
        self._open = contextlib.ExitStack()
        self._advance: Callable[[], None] = lambda: None
        self._began = self._ended = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._advance = self._open.enter_context(
            self._report.bar(f"Epoch {epoch + 1}/{self._epochs}", self.params["steps"])
        )
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._advance()
        self._ended = time.perf_counter()  # what comes after the last batch is validation

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._open.close()
        self._report.epoch(
            Epoch(
                logs["loss"],
                logs["accuracy"],
                logs["val_loss"],
                logs["val_accuracy"],
                self._images * hvd.size(),
                self._ended - self._began,
            )
        )

    def on_train_end(self, logs: Any = None) -> None:
        self._open.close()
