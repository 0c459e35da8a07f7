"""The model of the job that runs, for several threads; it also writes a line of progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod._figures.model import Model, Snapshot, counted

_STEP_EVERY = 10.0  # seconds between "step" events


class LiveModel:
    """``progress`` is called with the fields of a "step" event, every ten seconds."""

    def __init__(self, progress: Callable[[dict[str, Any]], None]) -> None:
        self._lock = threading.Lock()
        self._model = Model()
        self._progress = progress
        self._told: float | None = None
        self._metrics: Mapping[str, Any] = {}
        self.totals: dict[str, Any] = {}  # of rank 0, when it was last heard of

    def event(self, event: Mapping[str, Any]) -> None:
        """An event of the log."""
        with self._lock:
            self._model.event(event)

    def summaries(
        self,
        now: float,
        ranks: Sequence[Mapping[str, Any]],
        user: Mapping[str, Any],
        metrics: Mapping[str, Any],
    ) -> None:
        """What rank 0 knows of all ranks, and what it has counted itself."""
        with self._lock:
            self._metrics = metrics
            self._model.summaries(now, ranks, user)
            rates = self._model.snapshot(now)["rates"]
        first = counted(next((each for each in ranks if each["rank"] == 0), {}))
        self.totals = {"steps": first["steps"] or 0, "bytes": first["bytes"]}
        if self._told is None:
            self._told = now
        if rates and rates["steps_per_second"] is not None and now >= self._told + _STEP_EVERY:
            self._told = now
            shown = {
                "steps": first["steps"],
                "rate": round(rates["steps_per_second"], 3),
                "exposed": round(rates["exposed"], 3),
            }
            self._progress(shown)

    def metrics(self) -> Mapping[str, Any]:
        """What rank 0 has counted, as it last said."""
        with self._lock:
            return self._metrics

    def snapshot(self) -> Snapshot:
        """A copy for a reader."""
        with self._lock:
            return self._model.snapshot(time.time())
