"""hvd.metrics() and hvd.observe(): what this process has counted, without talking to anybody."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from horovod import _core
from horovod.common import session as sessions

# Numbers that say how it is now; all others only grow.
_GAUGES = frozenset(("pending", "stalled", "rtt_ns", "clock_offset_ns", "last_step_ns"))
_RENAMED = {"pending": "pending_operations", "stalled": "stalled_operations", "rtt_ns": "peer_rtt_seconds"}
_SIZES = ("4KiB", "64KiB", "1MiB", "16MiB", "256MiB", "more")
_HISTOGRAMS = ("operation_seconds", "negotiation_seconds", "step_seconds", "tensors_per_operation")
_NS = 1e-9
_SIGN = 1 << 63
_RATE_SECONDS = 5.0

Value = float | dict[str, Any]


class _Totals:
    """What engines that have ended had counted, and what the user tells."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ended: dict[str, int] = {}
        self.resets = 0
        self.samples = 0.0
        self.told: dict[str, float] = {}
        self.rate: tuple[float, float, float] | None = None  # when, samples then, per second


_totals = _Totals()


def observe(samples: float | None = None, **values: float) -> None:
    """Adds to what the job shows of itself: samples that were processed since the last call, and
    figures such as `loss=0.3`, of which the last one counts."""
    with _totals.lock:
        if samples is not None and math.isfinite(count := float(samples)):
            _totals.samples += count
        for name, value in values.items():
            _totals.told[name] = float(value)


def metrics(all_ranks: bool = False) -> dict[str, Value]:
    """What this process has counted since it started: counters (`..._total`), histograms and gauges.

    Times are seconds, sizes bytes. It never communicates. `all_ranks`: on rank 0 also "ranks", what
    it has heard of each rank in the last second or so; ValueError elsewhere.
    """
    session = sessions.for_query()
    if all_ranks and session.place.rank != 0:
        raise ValueError("hvd.metrics(all_ranks=True) is for rank 0, to which the others report")
    result = arranged(_core.METRICS, session.engine.metrics(), _totals.ended)
    result["resets_total"] = float(_totals.resets)
    result["samples_total"] = _totals.samples
    result["up"] = 1.0
    if session.tuning is not None:
        result["tuning"] = dict(session.tuning.status)
    if _totals.told:
        result["user"] = dict(_totals.told)
    if all_ranks:
        result["ranks"] = {each["rank"]: each for each in summaries(session.engine)}
    return result


def arranged(names: Sequence[str], values: Sequence[int], before: Mapping[str, int]) -> dict[str, Value]:
    """The engine's numbers under the names that users see; `before` is added to those that grow."""
    result: dict[str, Value] = {}
    buckets: dict[tuple[str, str], dict[int, int]] = {}
    sums: dict[tuple[str, str], float] = {}
    for name, now in zip(names, values, strict=True):
        first, *rest = name.split(".")
        value = now + (0 if first in _GAUGES else before.get(name, 0))
        if first in _HISTOGRAMS:
            part = _SIZES[int(rest[0])] if first == "operation_seconds" else ""
            if rest[-1].startswith("sum"):
                sums[first, part] = value * _NS if rest[-1] == "sum_ns" else value
            else:
                buckets.setdefault((first, part), {})[int(rest[-1])] = value
        elif rest:  # by kind
            group = result.setdefault(f"{first}_total", {})
            assert isinstance(group, dict)
            group[rest[0]] = value
        elif first in _GAUGES:
            signed = value - (1 << 64) if value >= _SIGN else value
            shown = _RENAMED.get(first, first.replace("_ns", "_seconds"))
            result[shown] = signed * _NS if first.endswith("_ns") else float(signed)
        else:
            shown = first.replace("_ns", "_seconds") + "_total"
            result[shown] = value * _NS if first.endswith("_ns") else float(value)
    for (name, part), counts in buckets.items():
        made = _histogram(name, counts, sums[name, part])
        if not part:
            result[name] = made
        else:
            group = result.setdefault(name, {})
            assert isinstance(group, dict)
            group[part] = made
    return result


def _histogram(name: str, counts: Mapping[int, int], total: float) -> dict[str, Any]:
    """Buckets by their upper limits, as Prometheus has them: each counts all that is smaller, too."""
    unit = 1.0 if name == "tensors_per_operation" else 1e-6
    limits: dict[float, int] = {}
    so_far, last = 0, max(counts)
    for index in range(last + 1):
        so_far += counts.get(index, 0)
        limits[float("inf") if index == last else unit * 2 ** (index + 1)] = so_far
    return {"buckets": limits, "sum": total, "count": so_far}


def remember(engine: _core.Engine) -> None:
    """Keeps the counters of an engine that is about to end: they must not fall with the next one."""
    with _totals.lock:
        for name, value in zip(_core.METRICS, engine.metrics(), strict=True):
            if name not in _GAUGES:
                _totals.ended[name] = _totals.ended.get(name, 0) + value
        _totals.resets += 1


def summaries(engine: _core.Engine) -> list[dict[str, Any]]:
    """What is known of each rank, for those who show it."""
    return [
        {
            **dict(zip(_core.Summary.__annotations__, each, strict=True)),
            "running": each.name if each.running_ns else "",
        }
        for each in engine.summaries()
        if each.known
    ]


def told() -> dict[str, float]:
    """What the user has told, and how many samples come in a second.

    JSON has no name for a loss that is not a number: what is not finite is left out.
    """
    now = time.monotonic()
    with _totals.lock:
        result = dict(_totals.told)
        if _totals.samples:
            result |= {"samples": _totals.samples, "samples_per_second": _rate(now)}
    return {name: value for name, value in result.items() if math.isfinite(value)}


def _rate(now: float) -> float:
    """Samples in a second; with the lock."""
    at, samples, rate = _totals.rate or (now, _totals.samples, 0.0)
    if now - at >= 1.0:
        share = min(1.0, (now - at) / _RATE_SECONDS)
        rate += share * ((_totals.samples - samples) / (now - at) - rate)
        at, samples = now, _totals.samples
    _totals.rate = (at, samples, rate)
    return rate
