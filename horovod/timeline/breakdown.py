"""Where the time of the steps went, on every rank: pure functions over traces.

An application thread that is blocked in a wait is *exposed* communication. For operations that call
back, as TensorFlow's, nobody waits: of them it is the time from the last submission of a step to
their last end. Every moment of it is one of: an operation runs here (transfer); the awaited one
lacks ranks (late); all have it, and it is not yet released (queue); anything else between
(control). What is left of a step is compute. So the parts add up to the step by construction.
"""

from __future__ import annotations

import itertools
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from horovod.timeline import steps as stepping
from horovod.timeline.clocks import HostClock
from horovod.timeline.folds import Knowledge, RankFolds, shares
from horovod.timeline.records import NETWORK
from horovod.timeline.trace import Fold, Key, Operation, RankTrace

PARTS = ("compute", "late", "queue", "control", "transfer")
SMALL = 64 << 10  # bytes of an operation whose time is that of messages, not of data
_CLASSES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
_CLASS_NAMES = ("≤ 4 KiB", "≤ 64 KiB", "≤ 1 MiB", "≤ 16 MiB", "≤ 256 MiB", "> 256 MiB")
_FULL = 0.9  # of the processors' time: who has to wait for one then, waits for the ranks
_NAMED = 0.02  # of a step: less lag than this makes nobody the last

ALLREDUCE = 0  # its kind

Interval = tuple[float, float]
Spans = Mapping[int, Sequence[Interval]]
_Blocked = tuple[float, float, str, Key | None]  # begin, end, the name of what was awaited, and its operation


@dataclass
class RankResult:
    """One rank's mean step; ns."""

    rank: int
    host: str
    parts: dict[str, float]
    hidden: float
    cpu: float | None  # share of its own compute time in which the processor worked for it
    data: float | None  # in marks named "data"; None without such marks
    waited: float  # of its main thread, for a processor


@dataclass
class Result:
    """All ranks together; times are ns of a mean step unless said otherwise."""

    ranks: list[RankResult]
    hosts: list[str]
    found_by: str
    count: int  # of steps that were looked at
    step: float
    parts: dict[str, float]
    hidden: float
    last: dict[int, int] = field(default_factory=dict)  # steps in which the others waited for a rank
    charged: dict[int, float] = field(default_factory=dict)  # what that cost the others, each
    operations: float = 0.0  # in a step
    tensors: float = 0.0
    small: float = 0.0
    small_seconds: float = 0.0  # control and transfer of small ones, exposed or not
    operation_bytes: float = 0.0
    step_bytes: float = 0.0
    classes: list[tuple[str, int, float, float]] = field(default_factory=list)  # count, ms, GB/s
    top: list[tuple[str, float]] = field(default_factory=list)
    once: float = 0.0  # share of the names that came only once
    transport: str = ""
    # Bytes a second, of allreduces that are not small; 0: not known
    bus: float = 0.0  # of a rank, within its host
    copy: float = 0.0  # what a rank of the slowest host copies at, for comparison
    network: float = 0.0  # what a host sends while it exchanges with others
    link: float = 0.0  # what the slowest host's interface could
    network_share: float = 0.0  # of a step, in which that host exchanges with others
    dropped: int = 0
    full: dict[str, int] = field(default_factory=dict)  # hosts that the ranks keep busy, their processors
    lost: list[int] = field(default_factory=list)  # ranks whose records end in the middle

    def host_of(self, rank: int) -> str:
        """Where it ran, for a reader."""
        return next((each.host for each in self.ranks if each.rank == rank), "without records")


def analyse(traces: Mapping[int, RankTrace], clocks: Mapping[str, HostClock], transport: str) -> Result:
    """ValueError if there are no steps to speak of."""
    times, found_by = stepping.boundaries(traces)
    spans = {rank: stepping.measured(each) for rank, each in times.items()}
    count = min((len(each) for each in spans.values()), default=0)
    if count == 0:
        raise ValueError(found_by if found_by.startswith("no step") else "less than two steps were recorded")
    first = min(traces)
    arrivals, knowledge = traces[first].arrivals, Knowledge(traces[first])
    folds = {rank: RankFolds(knowledge, trace) for rank, trace in traces.items()}
    results: list[RankResult] = []
    # Also ranks whose records are lost: the others' tell whom they waited for.
    voted = (each.ready for each in arrivals.values())
    named = frozenset(traces).union(*voted, *(fold.ranks for fold in knowledge.folds))
    charged: dict[int, list[float]] = {rank: [0.0] * count for rank in sorted(named)}
    waited: Counter[str] = Counter()
    to_zero = {rank: clocks[trace.host] for rank, trace in traces.items()}
    waits = {rank: _waits(trace, spans[rank]) for rank, trace in traces.items()}
    blocked = {rank: _union([wait[:2] for wait in each]) for rank, each in waits.items()}
    for rank, trace in traces.items():
        account = _Account(trace, waits[rank], to_zero[rank], arrivals, folds[rank])
        span = spans[rank]
        total = account.count(span)
        for key, begin, end, index in account.late:
            culprit = _culprit(key, arrivals, rank)
            if key is None or culprit is None:
                continue
            # A rank that was blocked itself meanwhile is a victim, too.
            excuse = 0.0
            if culprit in traces:
                clock, other = to_zero[rank], to_zero[culprit]
                here = (clock(begin) - other.offset(begin), clock(end) - other.offset(end))
                excuse = _overlap(blocked[culprit], here) + folds[culprit].blocked(*here, key)
            charged[culprit][index] += max(0.0, end - begin - excuse)
        for wait in folds[rank].waits:
            fold = wait.fold
            for index, (begin, end) in shares(fold.begin, fold.end, span[:count]):
                for culprit, lag in wait.blamed.items():
                    charged[culprit][index] += lag * (end - begin) / (fold.end - fold.begin)
        waited.update(account.by_name)
        results.append(
            RankResult(
                rank,
                trace.host,
                {part: total[part] / count for part in PARTS},
                account.hidden / count,
                _cpu(trace, span, total["compute"]),
                _data(trace, span),
                _waited(trace, span),
            )
        )
    for number, fold in enumerate(knowledge.folds):
        caused = sum(known.caused for known in fold.ranks.values())
        # Of what a rank has caused only that counts in which somebody was blocked.
        part = sum(each.late[number] for each in folds.values()) / caused if caused else 0.0
        for index, (begin, end) in shares(fold.begin, fold.end, spans[first][:count]):
            for rank, known in fold.ranks.items():
                charged[rank][index] += part * known.caused * (end - begin) / (fold.end - fold.begin)
    mean = _means(results)
    step = sum(mean[part] for part in PARTS)
    others = max(1, len(traces) - 1)
    last: Counter[int] = Counter()
    for index in range(count):
        worst = max(charged, key=lambda each: charged[each][index])
        if charged[worst][index] / others > _NAMED * step:
            last[worst] += 1
    result = Result(
        ranks=results,
        hosts=list(dict.fromkeys(trace.host for trace in traces.values())),
        found_by=found_by,
        count=count,
        step=step,
        parts=mean,
        hidden=statistics.fmean(each.hidden for each in results),
        last=dict(last),
        charged={rank: sum(each) / count / others for rank, each in charged.items()},
        transport=transport,
        dropped=sum(trace.dropped for trace in traces.values()),
        lost=[rank for rank, trace in traces.items() if trace.torn],
        full=_full(traces, spans),
        top=[(name, value / count / len(traces)) for name, value in waited.most_common(5)],
    )
    _look_at_operations(result, traces[first], spans[first], len(traces))
    _look_at_speeds(result, traces, spans)
    return result


def _means(results: Sequence[RankResult]) -> dict[str, float]:
    return {part: statistics.fmean(each.parts[part] for each in results) for part in PARTS}


def _culprit(key: Key | None, arrivals: Mapping[Key, object], rank: int) -> int | None:
    arrival = arrivals.get(key) if key is not None else None
    ready = getattr(arrival, "ready", {})
    if not ready:
        return None
    culprit = max(ready, key=lambda each: ready[each])
    return None if culprit == rank else int(culprit)


def _waits(trace: RankTrace, span: Sequence[Interval]) -> list[_Blocked]:
    """Blocked time without overlap."""
    every: list[_Blocked] = [(wait.begin, wait.end, wait.name, wait.key) for wait in trace.waits]
    result: list[_Blocked] = []
    until = float("-inf")
    for begin, end, name, key in sorted(every + _called_back(trace, span), key=lambda each: each[:2]):
        if end > until:
            result.append((max(until, begin), end, name, key))
            until = end
    return result


def _called_back(trace: RankTrace, span: Sequence[Interval]) -> list[_Blocked]:
    """Of operations that call back: from the last submission of a step to its last end."""
    chosen = [op for op in trace.operations.values() if op.calls_back and op.end is not None]
    ends = sorted((op.end or 0, op.tensors[0].name, op.key) for op in chosen)
    submits = sorted(tensor.submit for op in chosen for tensor in op.tensors if tensor.submit is not None)
    result: list[_Blocked] = []
    for begin, end in span:
        at, last = bisect_left(submits, end), bisect_right(ends, end, key=_first)
        if at and last and begin <= submits[at - 1] < ends[last - 1][0]:
            result.append((submits[at - 1], *ends[last - 1]))
    return result


class _Account:
    """The exposed time of one rank, moment by moment."""

    def __init__(
        self,
        trace: RankTrace,
        waits: Sequence[_Blocked],
        clock: HostClock,
        arrivals: Mapping[Key, object],
        folded: RankFolds,
    ) -> None:
        self._trace = trace
        self._waits = waits
        self._folded = folded
        self._clock = clock
        self._arrivals = arrivals
        self._runs = _union([(op.begin, op.end) for op in trace.operations.values() if op.end is not None])
        self.late: list[tuple[Key | None, float, float, int]] = []
        self.by_name: Counter[str] = Counter()
        self.hidden = 0.0

    def count(self, span: Sequence[Interval]) -> dict[str, float]:
        total = dict.fromkeys(PARTS, 0.0)
        waits = self._waits
        starts = [wait[0] for wait in waits]
        flight = _union(
            [
                (op.submit if op.submit is not None else op.begin, op.end)
                for op in self._trace.operations.values()
                if op.end is not None
            ]
        )
        for index, (begin, end) in enumerate(span):
            exposed = 0.0
            for at in range(max(0, bisect_left(starts, begin) - 1), len(waits)):
                wait_begin, wait_end, name, key = waits[at]
                if wait_begin >= end:
                    break
                piece = (max(begin, wait_begin), min(end, wait_end))
                if piece[1] > piece[0]:
                    self._classify(piece, key, index, total)
                    self.by_name[name] += int(piece[1] - piece[0])
                    exposed += piece[1] - piece[0]
            total["compute"] += end - begin - exposed
            self.hidden += max(0.0, _overlap(flight, (begin, end)) - exposed)
        self._count_folds(span, _union([wait[:2] for wait in waits]), total)
        return total

    def _count_folds(
        self, span: Sequence[Interval], waits: Sequence[Interval], total: dict[str, float]
    ) -> None:
        """Another thread may have waited meanwhile; that was counted."""
        for wait in self._folded.waits:
            fold = wait.fold
            pieces = [piece for _, piece in shares(fold.begin, fold.end, span)]
            free = sum(end - begin - _overlap(waits, (begin, end)) for begin, end in pieces)
            share = free / (fold.end - fold.begin)
            for part, value in wait.parts.items():
                total[part] += share * value
            total["compute"] -= share * fold.exposed
            self.hidden += share * wait.hidden
            self.by_name[fold.name] += int(share * fold.exposed)

    def _classify(self, piece: Interval, key: Key | None, step: int, total: dict[str, float]) -> None:
        ready, release = self._moments(key)
        at = piece[0]
        for begin, end in [*_within(self._runs, piece), (piece[1], piece[1])]:
            for part, limit in (("late", ready), ("queue", release), ("control", piece[1])):
                until = min(max(at, limit), begin)
                if until > at:
                    total[part] += until - at
                    if part == "late":
                        self.late.append((key, at, until, step))
                    at = until
            total["transfer"] += end - begin
            at = max(at, end)

    def _moments(self, key: Key | None) -> Interval:
        """When the last rank had the operation and when it was released, by this rank's clock."""
        if key in self._folded.moments:
            return self._folded.moments[key]
        arrival = self._arrivals.get(key) if key is not None else None
        ready = getattr(arrival, "ready", {})
        if not ready:
            return float("-inf"), float("-inf")
        latest, release = max(ready.values()), getattr(arrival, "release", 0)
        return latest - self._clock.offset(latest), release - self._clock.offset(release)


def _cpu(trace: RankTrace, span: Sequence[Interval], compute: float) -> float | None:
    """Of the compute time; waiting costs little of the processor's."""
    used = _used(trace, span)
    return None if used is None or compute <= 0 else used / compute


def _used(trace: RankTrace, span: Sequence[Interval]) -> float | None:
    """What all its threads used of the processors."""
    samples = [(step.time, step.cpu) for step in trace.steps]
    samples = sorted(samples + [(sample.time, sample.cpu) for sample in trace.processor])
    if len(samples) < 2:
        return None
    begin, end = span[0][0], span[-1][1]
    if samples[-1][0] <= begin or samples[0][0] >= end:
        return None
    return max(0.0, _between(samples, end) - _between(samples, begin))


def _waited(trace: RankTrace, span: Sequence[Interval]) -> float:
    samples = sorted((sample.time, sample.waited) for sample in trace.processor)
    if len(samples) < 2:
        return 0.0
    return max(0.0, _between(samples, span[-1][1]) - _between(samples, span[0][0])) / len(span)


def _full(traces: Mapping[int, RankTrace], spans: Spans) -> dict[str, int]:
    """Where the ranks themselves, not other programs, leave no processor idle."""
    found: dict[str, int] = {}
    for host in dict.fromkeys(trace.host for trace in traces.values()):
        here = {rank: trace for rank, trace in traces.items() if trace.host == host}
        count = len(frozenset().union(*(trace.processors for trace in here.values())))
        count = min([count, *(trace.quota for trace in here.values() if trace.quota)])
        shares = [
            (_used(trace, spans[rank]) or 0.0) / (spans[rank][-1][1] - spans[rank][0][0])
            for rank, trace in here.items()
        ]
        if count and sum(shares) > _FULL * count:
            found[host] = count
    return found


def _between(samples: Sequence[tuple[int, int]], time: float) -> float:
    """The value at this time, if it grew evenly from sample to sample."""
    index = bisect_left(samples, (time,))
    if index in (0, len(samples)):
        return samples[min(index, len(samples) - 1)][1]
    (before, low), (after, high) = samples[index - 1 : index + 1]
    return low + (high - low) * (time - before) / (after - before)


def _data(trace: RankTrace, span: Sequence[Interval]) -> float | None:
    marks = _union([(mark.begin, mark.end) for mark in trace.marks if mark.name == "data"])
    if not marks:
        return None
    return sum(_overlap(marks, piece) for piece in span) / len(span)


def _look_at_operations(result: Result, trace: RankTrace, span: Sequence[Interval], size: int) -> None:
    begin, end = span[0][0], span[-1][1]
    chosen = [op for op in trace.operations.values() if op.end is not None and begin <= op.begin < end]
    folds = [(fold, _times_within(fold, begin, end)) for fold in trace.folds]
    folded = sum(times for _, times in folds)
    if not chosen and not folded:
        return
    count = len(span)
    result.operations = (len(chosen) + folded) / count
    result.tensors = (sum(len(op.tensors) for op in chosen) + folded) / count
    every = [(op.bytes, (op.end or 0) - op.begin, 1) for op in chosen]
    every += [(fold.bytes, fold.sums.get("run", 0) // fold.count, times) for fold, times in folds if times]
    result.step_bytes = sum(amount * times for amount, _, times in every) / count
    result.operation_bytes = result.step_bytes / result.operations
    small = [op for op in chosen if op.bytes <= SMALL]
    result.small = (len(small) + folded) / count
    # From the end of the one before it, at least: what a message costs besides its data.
    ordered = sorted(chosen, key=lambda op: op.begin)
    gaps: dict[Key, float] = {}
    for before, after in itertools.pairwise(ordered):
        submit = after.submit if after.submit is not None else after.begin
        gaps[after.key] = max(0.0, after.begin - max(before.end or 0, submit))
    seconds = sum(gaps.get(op.key, 0.0) + (op.end or 0) - op.begin for op in small)
    seconds += sum(fold.sums.get("flight", 0) * times / fold.count for fold, times in folds)
    result.small_seconds = seconds / count
    by_class: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for each in every:
        by_class[bisect_left(_CLASSES, each[0])].append(each)
    factor = 2 * (size - 1) / size
    for index, alike in sorted(by_class.items()):
        seconds = sum(time * times for _, time, times in alike) / 1e9
        rate = factor * sum(amount * times for amount, _, times in alike) / seconds / 1e9 if seconds else 0.0
        median = _median([(time, times) for _, time, times in alike])
        number = sum(times for *_, times in alike)
        result.classes.append((_CLASS_NAMES[index], number, median / 1e6, rate))
    names = Counter(tensor.name for op in trace.operations.values() for tensor in op.tensors)
    for fold in trace.folds:
        names[fold.name] += fold.count
    result.once = sum(1 for each in names.values() if each == 1) / max(1, len(names))


def _times_within(fold: Fold, begin: float, end: float) -> int:
    """How many of its operations are in this time, as if at even distances."""
    inside = max(0.0, min(end, fold.end) - max(begin, fold.begin))
    return round(fold.count * inside / (fold.end - fold.begin))


def _median(values: Sequence[tuple[int, int]]) -> float:
    """Of values that come so many times."""
    ordered = sorted(values)
    ends = list(itertools.accumulate(times for _, times in ordered))
    low, high = (bisect_right(ends, (ends[-1] + extra) // 2) for extra in (-1, 0))
    return (ordered[low][0] + ordered[high][0]) / 2


def _look_at_speeds(result: Result, traces: Mapping[int, RankTrace], spans: Spans) -> None:
    # What else runs makes a measurement slower, never quicker.
    result.copy = float(
        min(max(each.copy_speed for each in traces.values() if each.host == host) for host in result.hosts)
    )
    result.link = min(trace.link_speed for trace in traces.values()) / 8
    hosts = len(result.hosts)
    if hosts == 1:
        runs = _large(traces[min(traces)], spans[min(traces)])
        seconds = sum((op.end or 0) - op.begin for op in runs) / 1e9
        factor = 2 * (len(traces) - 1) / len(traces)
        result.bus = factor * sum(op.bytes for op in runs) / seconds if seconds else 0.0
        return
    rates: list[Interval] = []  # with the share of a step
    for host in result.hosts:
        sent, steps, busy = 0.0, 0.0, []
        for rank, trace in traces.items():
            if trace.host != host:
                continue
            steps = spans[rank][-1][1] - spans[rank][0][0]
            for op in _large(trace, spans[rank]):
                phases = [each for each in op.phases if each[0] == NETWORK]
                if not op.phases:  # a rank on each host: all of it is network
                    phases = [(NETWORK, op.begin, op.end or op.begin, op.bytes)]
                sent += 2 * (hosts - 1) / hosts * sum(amount for *_, amount in phases)
                busy += [(float(begin), float(end)) for _, begin, end, _ in phases]
        seconds = sum(end - begin for begin, end in _union(busy)) / 1e9
        if seconds:
            rates.append((sent / seconds, min(1.0, 1e9 * seconds / steps)))
    result.network, result.network_share = min(rates, default=(0.0, 0.0))


def _large(trace: RankTrace, span: Sequence[Interval]) -> list[Operation]:
    begin, end = span[0][0], span[-1][1]
    return [
        op
        for op in trace.operations.values()
        if op.kind == ALLREDUCE and op.bytes > SMALL and op.end is not None and begin <= op.begin < end
    ]


# -- intervals --


def _union(intervals: Sequence[tuple[float, float]]) -> list[Interval]:
    result: list[Interval] = []
    for begin, end in sorted(intervals):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        elif end > begin:
            result.append((begin, end))
    return result


def _within(union: Sequence[Interval], piece: Interval) -> list[Interval]:
    start = max(0, bisect_right(union, piece[0], key=_first) - 1)
    result: list[Interval] = []
    for begin, end in union[start:]:
        if begin >= piece[1]:
            break
        if end > piece[0]:
            result.append((max(begin, piece[0]), min(end, piece[1])))
    return result


def _overlap(union: Sequence[Interval], piece: Interval) -> float:
    return sum(end - begin for begin, end in _within(union, piece))


_first: Callable[[tuple[Any, ...]], float] = lambda values: float(values[0])  # noqa: E731
