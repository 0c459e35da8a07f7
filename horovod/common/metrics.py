"""hvd.metrics() and hvd.observe(): what this process has counted, without talking to anybody."""

from __future__ import annotations

import functools
import math
import operator
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import horovod
from horovod import _core
from horovod.common import session as sessions

# Numbers that say how it is now, how they are shown and in what unit; all others only grow.
_GAUGES = {
    "pending": ("pending_operations", 1.0),
    "stalled": ("stalled_operations", 1.0),
    "rtt_ns": ("peer_rtt_seconds", 1e-9),
    "clock_offset_ns": ("clock_offset_seconds", 1e-9),
    "last_step_ns": ("last_step_seconds", 1e-9),
    "resident_bytes": ("resident_bytes", 1.0),
    "exposed_ppm": ("exposed_ratio", 1e-6),
    "cpu_ppm": ("cpu_ratio", 1e-6),
    "bus_rate": ("bus_bytes_per_second", 1.0),
}
_SIZES = ("4KiB", "64KiB", "1MiB", "16MiB", "256MiB", "more")
_NS = 1e-9
_SIGN = 1 << 63
_RATE_SECONDS = 5.0
# Of what rank 0 hears of a rank: what a new engine counts from 0 again
_OF_RANKS = ("steps", "operations", "bytes", "blocked_ns", "dropped", "last_ready", "late_ns")

Value = float | dict[str, Any]


class _Ended(NamedTuple):
    """What engines that have ended had counted: the numbers of METRICS, and on rank 0 those of the ranks."""

    numbers: Sequence[int]
    ranks: Mapping[int, Mapping[str, int]]


class _Totals:
    """What engines that have ended had counted, and what the user tells."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ended = self.before = _Ended([0] * len(_core.METRICS), {})  # `before`: without the last one
        self.last: weakref.ref[_core.Engine] | None = None  # of those that have ended
        self.resets = 0
        self.samples = 0.0
        self.told: dict[str, float] = {}
        self.rate: tuple[float, float, float] | None = None  # when, samples then, per second

    def before_engine(self, engine: _core.Engine) -> _Ended:
        """What goes before its own numbers; somebody may still ask while it ends."""
        with self.lock:
            return self.before if self.last is not None and self.last() is engine else self.ended


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
    result = _counted(session.engine)
    version = horovod.__version__
    result["info"] = {"version": version, "transport": session.transport, "size": session.place.size}
    if session.tuning is not None:
        result["tuning"] = dict(session.tuning.status)
    if _totals.told:
        result["user"] = dict(_totals.told)
    if all_ranks:
        before = _totals.before_engine(session.engine).ranks
        result["ranks"] = {
            each["rank"]: each | _added(each, before.get(each["rank"], {}))
            for each in summaries(session.engine)
        }
    return result


def _added(summary: Mapping[str, Any], before: Mapping[str, int]) -> dict[str, int]:
    return {name: summary[name] + before.get(name, 0) for name in _OF_RANKS}


def _counted(engine: _core.Engine) -> dict[str, Value]:
    result = _layout().arranged(engine.metrics(), _totals.before_engine(engine).numbers)
    result["resets_total"] = float(_totals.resets)
    result["samples_total"] = _totals.samples
    result["up"] = 1.0
    return result


class _Histogram(NamedTuple):
    """Where one begins among the numbers: how many, their sum, and the buckets."""

    name: str
    kind: str | None  # of operation, and the size of it
    size: str
    start: int
    end: int
    limits: tuple[float, ...]
    unit: float  # of the sum

    def taken(self, values: Sequence[int], before: Sequence[int]) -> dict[str, Any]:
        """Buckets by their upper limits; each counts all that is smaller, too."""
        _, _, _, start, end, limits, unit = self
        counts: Iterable[int] = values[start + 2 : end]
        if before[start]:
            counts = map(operator.add, counts, before[start + 2 : end])
        buckets = dict(zip(limits, counts, strict=True))
        # The last one: more may have come since the count was read.
        return {
            "buckets": buckets,
            "sum": (values[start + 1] + before[start + 1]) * unit,
            "count": buckets[limits[-1]],
        }


class Layout:
    """Where the engine's numbers go, by their names: found once, as metrics() is to be quick."""

    def __init__(self, names: Sequence[str]) -> None:
        self._gauges: list[tuple[str, int, float]] = []
        self._counters: list[tuple[str, int, float]] = []
        self._groups: dict[str, list[tuple[str, int]]] = {}
        self._histograms: list[_Histogram] = []  # of all operations
        self._by_kind: list[tuple[int, _Histogram]] = []
        end = 0
        for index, name in enumerate(names):
            first, *rest = name.split(".")
            if index < end:
                continue
            if rest and rest[-1] == "count":
                made = _histogram(names, index, first, rest[:-1])
                end = made.end
                if made.kind is None:
                    self._histograms.append(made)
                else:
                    self._by_kind.append((index, made))
            elif first in _GAUGES:
                shown, unit = _GAUGES[first]
                self._gauges.append((shown, index, unit))
            elif rest:  # by kind or direction
                self._groups.setdefault(f"{first}_total", []).append((rest[0], index))
            else:
                shown = first.replace("_ns", "_seconds") + "_total"
                self._counters.append((shown, index, _NS if first.endswith("_ns") else 1.0))

    def arranged(self, values: Sequence[int], before: Sequence[int]) -> dict[str, Value]:
        """The numbers under the names that users see; `before` is added to those that grow.

        Of the histograms by kind and size only those that have counted something.
        """
        result: dict[str, Value] = {
            shown: (values[index] + before[index]) * unit for shown, index, unit in self._counters
        }
        for shown, index, unit in self._gauges:
            value = values[index]
            result[shown] = (value - (1 << 64) if value >= _SIGN else value) * unit
        for shown, parts in self._groups.items():
            result[shown] = {part: values[index] + before[index] for part, index in parts}
        for each in self._histograms:
            result[each.name] = each.taken(values, before)
        for index, each in self._by_kind:
            if values[index] or before[index]:
                by_kind: Any = result.setdefault(each.name, {})
                by_kind.setdefault(each.kind, {})[each.size] = each.taken(values, before)
        return result


def _histogram(names: Sequence[str], start: int, name: str, parts: Sequence[str]) -> _Histogram:
    prefix = ".".join((name, *parts)) + "."
    end = start + 2
    while end < len(names) and names[end].startswith(prefix):
        end += 1
    scale, unit = (1e-6, _NS) if names[start + 1].endswith("_ns") else (1.0, 1.0)
    limits = [scale * 2**power for power in range(1, end - start - 2)]
    kind, size = (parts[0], _SIZES[int(parts[1])]) if parts else (None, "")
    return _Histogram(name, kind, size, start, end, (*limits, float("inf")), unit)


@functools.cache
def _layout() -> Layout:
    return Layout(_core.METRICS)  # not at once: most processes never ask


def remember(engine: _core.Engine) -> None:
    """Keeps the counters of an engine that is about to end: they must not fall with the next one."""
    with _totals.lock:
        before = _totals.before = _totals.ended
        # A gauge's own number is never added to, so it may be here, too.
        numbers = list(map(operator.add, engine.metrics(), before.numbers))
        ranks = dict(before.ranks)
        known = summaries(engine)
        for each in known:
            # Who is not rank 0 knows only itself, and tells of that if it becomes rank 0.
            rank = each["rank"] if len(known) > 1 else 0
            ranks[rank] = _added(each, before.ranks.get(rank, {}))
        _totals.ended = _Ended(numbers, ranks)
        _totals.last = weakref.ref(engine)
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


def figures(engine: _core.Engine) -> dict[str, Any]:
    """All that rank 0 knows, as JSON: of the ranks, of the user, and what it has counted itself."""
    counted = _counted(engine)
    histograms = [each for each in counted.values() if isinstance(each, dict) and "buckets" in each]
    by_kind: Any = counted.get("operation_seconds", {})
    histograms += [each for by_size in by_kind.values() for each in by_size.values()]
    for each in histograms:
        each["buckets"] = {_limit(limit): count for limit, count in each["buckets"].items()}
    before = _totals.before_engine(engine).ranks
    ranks = [{**each, "before": before.get(each["rank"], {})} for each in summaries(engine)]
    return {"ranks": ranks, "user": told(), "metrics": counted}


def _limit(limit: float) -> str:
    """As Prometheus writes it."""
    return f"{limit:.6g}" if math.isfinite(limit) else "+Inf"


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
