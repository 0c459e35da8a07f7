"""Rank 0's side of HOROVOD_AUTOTUNE: the core searches, this writes down how it goes."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from horovod import _core
from horovod.common import observer, profile

if TYPE_CHECKING:
    from horovod.common.config import Config

# The original's columns, then ours. What this engine does not have is 0.
_ORIGINAL = (
    "hierarchical_allreduce",
    "hierarchical_allgather",
    "torus_allreduce",
    "cache_enabled",
    "cycle_time_ms",
    "tensor_fusion_threshold",
    "score",
)
COLUMNS = (
    *_ORIGINAL,
    "stage",
    "step_ms",
    "ratio",
    "won",
    "pairs",
    "adopted",
    "steps",
    *(name for name in _core.TUNABLES if name != "fusion_threshold"),
)
_MIB = 1 << 20
_SHUFFLE = "_HOROVOD_AUTOTUNE_SHUFFLE"  # for tests: other parameters for each operation


class Tuning:
    """From start() of the engine's search to close()."""

    def __init__(self, config: Config, transport: str, hosts: Sequence[str]) -> None:
        self._config = config
        self._transport = transport
        self._profile = profile.path(config.autotune_profile, transport, hosts, os.environ)
        self._last: dict[str, Any] = {}
        # What hvd.metrics() shows.
        self.status: dict[str, Any] = {
            "state": "searching",
            "steps": 0,
            "tried": 0,
            "ratio": 1.0,
            "values": {},
        }
        # A later world of an elastic job goes on in the same file.
        self._log = _Log(config.autotune_log, append=config.elastic)

    def start(self, engine: _core.Engine) -> None:
        """Begins with the profile, if there is one."""
        suggested = {} if self._profile is None else profile.read(self._profile)
        engine.autotune(
            suggested,
            warmup_samples=self._config.autotune_warmup_samples,
            steps_per_sample=self._config.autotune_steps_per_sample,
            max_samples=self._config.autotune_bayes_opt_max_samples,
            keep_fusion_threshold="HOROVOD_FUSION_THRESHOLD" in os.environ,
            shuffle=_SHUFFLE in os.environ,
        )

    def take(self, report: dict[str, Any]) -> None:
        """What the core tells, on the observer's thread."""
        if report["state"] == "sample":
            return self._sample(report)
        if report["state"] == "finished":
            self._finished(report)
        self.status.update(report)  # last: who reads that it is over finds the profile
        text = sentence(report)
        say(text)
        observer.tell({"event": "autotune", **report, "text": text})

    def close(self) -> None:
        """After the engine's shutdown."""
        if self.status["state"] == "searching":
            self.status["state"] = "unfinished"
            say(sentence(self.status))
        self._log.close()

    def _sample(self, report: dict[str, Any]) -> None:
        self.status["tried"] += 1
        self.status["steps"] = report["steps"]
        self._last = report
        self._write(report)

    def _finished(self, report: dict[str, Any]) -> None:
        # The last comparison was that of what stays, or with it.
        last = self._last
        factor = 1.0 if not last or last["adopted"] else last["ratio"]
        self._write(
            {
                **report,
                "stage": "best",
                "score": last.get("score", 0.0) * factor,
                "step_seconds": last.get("step_seconds", 0.0) / factor,
            }
        )
        if report["ratio"] < 1.0 and self._profile is not None:
            try:
                profile.write(self._profile, report["values"], report["ratio"], report["steps"])
                self.status["profile"] = str(self._profile)
            except OSError as error:
                say(f"can't keep the profile: {error}")

    def _write(self, report: Mapping[str, Any]) -> None:
        threshold = report["values"].get("fusion_threshold", self._config.fusion_threshold)
        several = int(self._transport == "hierarchical")
        self._log.write(
            {
                **report,
                **report["values"],
                "hierarchical_allreduce": several,
                "hierarchical_allgather": several,
                "torus_allreduce": 0,
                "cache_enabled": int(self._config.cache_capacity > 0),
                "cycle_time_ms": 0,
                "tensor_fusion_threshold": f"{threshold / _MIB:g}",
                "score": f"{report['score']:g}",
                "step_ms": f"{report['step_seconds'] * 1e3:g}",
                "adopted": int(report.get("adopted", True)),
            }
        )


class _Log:
    """The file of HOROVOD_AUTOTUNE_LOG, if there is one. It ends with a message when it can't be
    written."""

    def __init__(self, path: str | None, append: bool) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        if path is None:
            return
        try:
            # Without a buffer: what can't be written is known at once, and only once.
            self._file = io.FileIO(path, "a" if append else "w")
        except OSError as error:
            raise ValueError(f"HOROVOD_AUTOTUNE_LOG={path}: {error}") from error
        if self._file.tell() == 0:
            self.write(dict(zip(COLUMNS, COLUMNS, strict=True)))

    def write(self, row: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        text = io.StringIO()
        csv.DictWriter(text, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n").writerow(row)
        try:
            self._file.write(text.getvalue().encode())
        except OSError as error:
            say(f"{self._path}: {error}")
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def say(text: str) -> None:
    """To the user, who has asked for it, whatever the level of the log."""
    print(f"horovod: autotune: {text}", file=sys.stderr, flush=True)


def sentence(report: Mapping[str, Any]) -> str:
    """How the search has ended."""
    if report["state"] == "given_up":
        return f"given up: {report['reason']}"
    if report["state"] == "unfinished":
        return f"not over when Horovod was shut down, after {report['steps']} steps; nothing is kept"
    if report["ratio"] < 1.0:
        values = ", ".join(f"{name}={value}" for name, value in report["changed"].items())
        return f"steps take {1 - report['ratio']:.0%} less time since step {report['steps']}, with {values}"
    return (
        f"nothing is to be gained: in {report['steps']} steps nothing was found that makes them 3 % shorter; "
        "the defaults stay"
    )
