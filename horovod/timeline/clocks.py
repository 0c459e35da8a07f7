"""One clock for all hosts: that of rank 0's.

Ranks of a host share a clock. Between hosts heartbeats measure the offset, with an error of at most
half their round trip. The best ones, joined by lines, follow clocks that drift; where nothing was
measured the wall clocks are the first guess. Then the operations themselves are asked: nobody ends
an allreduce or a barrier before everybody has begun it. That bounds the offset between any two
hosts, from both sides.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from horovod.timeline.trace import ClockSample, Key, RankTrace

_WINDOW = 30e9  # ns; of the samples in each only the one with the shortest round trip counts
_KNOTS = 8  # at least so many windows, also in a short job
_SYNCHRONISING = frozenset((0, 1, 4, 5))  # allreduce, allgather, reducescatter, barrier
_ROUNDS = 12
_NOTE_ABOVE = 20_000.0  # ns by which operations must have moved a clock before it is worth a word


@dataclass
class HostClock:
    """What to add to the times of a host, at some moments and between them."""

    times: list[float] = field(default_factory=lambda: [0.0])
    offsets: list[float] = field(default_factory=lambda: [0.0])
    slope: float = 0.0  # beyond the first and last of them
    uncertainty: float = 0.0  # ns
    note: str = ""

    def offset(self, time: float) -> float:
        """At a moment of the host's own clock."""
        times, offsets = self.times, self.offsets
        at = bisect.bisect_right(times, time)
        if at == 0:
            return offsets[0] + self.slope * (time - times[0])
        if at == len(times):
            return offsets[-1] + self.slope * (time - times[-1])
        share = (time - times[at - 1]) / (times[at] - times[at - 1])
        return offsets[at - 1] + share * (offsets[at] - offsets[at - 1])

    def __call__(self, time: float) -> float:
        """A time of the host by rank 0's clock."""
        return time + self.offset(time)


def align(traces: Mapping[int, RankTrace], guesses: Mapping[str, float]) -> dict[str, HostClock]:
    """The clock of each host.

    ``guesses`` is what to add to the times of a host by the wall clocks, where nothing better is
    known.
    """
    reference = traces[min(traces)].host
    clocks = {reference: HostClock()}
    for host in dict.fromkeys(trace.host for trace in traces.values()):
        if host == reference:
            continue
        members = [trace for trace in traces.values() if trace.host == host]
        samples = sorted(sample for trace in members for sample in trace.clock)
        begin, end = min(trace.first for trace in members), max(trace.last for trace in members)
        if samples:
            clocks[host] = _from_samples(samples, begin, end)
        else:
            clocks[host] = _by_guess(guesses.get(host, 0.0), begin, end)
    if len(clocks) > 1:
        _obey_operations(traces, clocks, reference)
    return clocks


def _from_samples(samples: Sequence[ClockSample], begin: float, end: float) -> HostClock:
    window = min(_WINDOW, max((end - begin) / _KNOTS, 1.0))
    best: dict[int, ClockSample] = {}
    for sample in samples:
        index = int((sample.time - begin) / window)
        if index not in best or sample.round_trip < best[index].round_trip:
            best[index] = sample
    # A window in which only slow answers came says less than its neighbours.
    shortest = min(sample.round_trip for sample in best.values())
    chosen = [sample for sample in best.values() if sample.round_trip <= 2 * shortest + 20_000]
    chosen.sort()
    clock = HostClock([float(each.time) for each in chosen], [float(each.offset) for each in chosen])
    clock.slope = _slope(clock.times, clock.offsets)
    clock.uncertainty = max(sample.round_trip for sample in chosen) / 2
    return clock


def _by_guess(guess: float, begin: float, end: float) -> HostClock:
    count = max(1, int((end - begin) / _WINDOW))
    step = (end - begin) / count
    times = [begin + step * (index + 0.5) for index in range(count)]
    return HostClock(times, [guess] * count, uncertainty=math.inf, note="by the wall clocks")


def _slope(times: Sequence[float], values: Sequence[float]) -> float:
    if len(times) < 2:
        return 0.0
    time, value = sum(times) / len(times), sum(values) / len(values)
    square = sum((each - time) ** 2 for each in times)
    products = ((each - time) * (other - value) for each, other in zip(times, values, strict=True))
    return sum(products) / square if square else 0.0


def _obey_operations(traces: Mapping[int, RankTrace], clocks: dict[str, HostClock], reference: str) -> None:
    """Moves clocks, no more than needed, so that no operation ends before it has begun elsewhere."""
    spans = _spans(traces)
    moved = dict.fromkeys(clocks, 0.0)
    for _ in range(_ROUNDS):
        worst = 0.0
        for host, clock in clocks.items():
            if host == reference:
                continue
            change = _correct(host, clock, clocks, spans)
            moved[host] = max(moved[host], change)
            worst = max(worst, change)
        if worst < 1.0:
            break
    for host, change in moved.items():
        clock = clocks[host]
        if change > _NOTE_ABOVE and not clock.note:
            clock.note = f"moved by up to {change / 1000:.0f} µs, as operations demand"


_Span = dict[str, tuple[int, int]]  # by host: the last begin and the first end, by its own clock


def _spans(traces: Mapping[int, RankTrace]) -> list[_Span]:
    result: dict[Key, _Span] = {}
    for trace in traces.values():
        for key, operation in trace.operations.items():
            if operation.kind not in _SYNCHRONISING or operation.end is None or operation.code != 0:
                continue
            span = result.setdefault(key, {})
            begin, end = span.get(trace.host, (operation.begin, operation.end))
            span[trace.host] = (max(begin, operation.begin), min(end, operation.end))
    return [span for span in result.values() if len(span) > 1]


def _correct(host: str, clock: HostClock, clocks: Mapping[str, HostClock], spans: Sequence[_Span]) -> float:
    """Bounds by the nearest knot of the clock; returns by how much one was moved at most."""
    low = [-math.inf] * len(clock.times)
    high = [math.inf] * len(clock.times)
    for span in spans:
        if host not in span:
            continue
        begin, end = (clock(time) for time in span[host])
        middle = (span[host][0] + span[host][1]) / 2
        at = min(range(len(clock.times)), key=lambda index: abs(clock.times[index] - middle))
        for other, (other_begin, other_end) in span.items():
            if other != host:
                high[at] = min(high[at], clocks[other](other_end) - begin)
                low[at] = max(low[at], clocks[other](other_begin) - end)
    guessed = math.isinf(clock.uncertainty)
    moved, width = 0.0, 0.0
    for at in range(len(clock.times)):
        if math.isinf(low[at]) or math.isinf(high[at]):
            continue
        change = (low[at] + high[at]) / 2 if low[at] > high[at] else min(max(0.0, low[at]), high[at])
        clock.offsets[at] += change
        moved = max(moved, abs(change))
        width = max(width, abs(high[at] - low[at]))
    if guessed and width:
        _fill(clock, low, high)
        clock.uncertainty = width
        clock.slope = _slope(clock.times, clock.offsets)
    return moved


def _fill(clock: HostClock, low: Sequence[float], high: Sequence[float]) -> None:
    """Keeps only the knots that operations have bounded."""
    known = [at for at in range(len(clock.times)) if not math.isinf(low[at]) and not math.isinf(high[at])]
    clock.times = [clock.times[at] for at in known]
    clock.offsets = [clock.offsets[at] for at in known]


def violations(traces: Mapping[int, RankTrace], clocks: Mapping[str, HostClock]) -> list[float]:
    """By how many ns operations end before they have begun elsewhere, where they do."""
    found: list[float] = []
    for span in _spans(traces):
        last = max(clocks[host](begin) for host, (begin, _) in span.items())
        first = min(clocks[host](end) for host, (_, end) in span.items())
        if last > first:
            found.append(last - first)
    return found
