"""The layout for viewers: Chrome's JSON, as Perfetto and chrome://tracing open it.

A process for each rank, with lanes for steps, the application, the engine, the network
(between hosts), and waiting for ranks.
Slices of a lane never overlap: viewers draw nonsense then, without a word. Lanes have small numbers
that are unique over the whole file, and no lane is 0, for the same reason. Times are relative to a
base, because microseconds since 1970 do not fit a double with the digits that matter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from horovod.timeline import steps as stepping
from horovod.timeline.merge import World
from horovod.timeline.records import ALGORITHMS, DTYPES, KINDS, NETWORK, PHASES
from horovod.timeline.trace import Fold, Key, Operation, RankTrace

_LANES = ("step", "application", "engine", "network", "waiting for ranks", "marks")
_ALL = (-math.inf, math.inf)
_LATE = 200_000.0  # ns: less is not shown as waiting for a rank

Event = dict[str, Any]


def kind_name(kind: int) -> str:
    """In the original's words."""
    return KINDS[kind] if kind < len(KINDS) else f"KIND_{kind}"


class Layout:
    """The events of the worlds of a job."""

    def __init__(self, worlds: list[World], window: tuple[int, int] | None = None) -> None:
        """``window``: only steps of these numbers, the second not among them. ValueError if there
        are no steps to tell it by."""
        self._worlds = worlds
        self._windows = [_window(world, window) for world in worlds]
        if window is not None and not any(self._windows):
            _, why = stepping.boundaries(worlds[0].traces) if worlds else ({}, "nothing was recorded")
            raise ValueError(f"these steps can't be told from others: {why}")
        # A process that lives through several worlds is one.
        known = ((trace.host, trace.pid) for world in worlds for trace in world.traces.values())
        self.pids = {each: index + 1 for index, each in enumerate(dict.fromkeys(known))}
        self._named: set[int] = set()
        starts = [
            world.clocks[trace.host](trace.first) + world.epoch
            for world in worlds
            for trace in world.traces.values()
        ]
        self.base = int(min(starts, default=0))

    def events(self) -> Iterator[Event]:
        """All of them, in no particular order, names first."""
        for number, world in enumerate(self._worlds):
            if number > 0:
                yield self._reset(number, world)
            for trace in world.traces.values():
                yield from self._rank(number, world, trace)

    def _reset(self, number: int, world: World) -> Event:
        """A line through all lanes where the job goes on with other ranks."""
        first = world.traces[min(world.traces)]
        pid = self.pids[first.host, first.pid]
        begin = (world.clocks[first.host](first.first) + world.epoch - self.base) / 1000
        return {
            "ph": "i",
            "s": "g",
            "name": f"world {number + 1}: {world.size} ranks",
            "pid": pid,
            "tid": pid * 10,
            "ts": round(max(0.0, begin), 3),
            **({"args": {"reason": world.reason}} if world.reason else {}),
        }

    def _ranks_of(self, trace: RankTrace) -> str:
        """A process may have another rank in each world."""
        same = (
            other.rank
            for world in self._worlds
            for other in world.traces.values()
            if (other.host, other.pid) == (trace.host, trace.pid)
        )
        return ", then ".join(map(str, dict.fromkeys(same)))

    def _rank(self, number: int, world: World, trace: RankTrace) -> Iterator[Event]:
        pid = self.pids[trace.host, trace.pid]
        if pid not in self._named:
            self._named.add(pid)
            title = f"rank {self._ranks_of(trace)} · {trace.host} · pid {trace.pid}"
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": title}}
            yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": trace.rank}}
            for index, lane in enumerate(_LANES):
                tid = pid * 10 + index
                yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": lane}}
                yield {
                    "ph": "M",
                    "name": "thread_sort_index",
                    "pid": pid,
                    "tid": tid,
                    "args": {"sort_index": index},
                }
        limits = self._windows[number].get(trace.rank, _ALL)
        rank = _Rank(self, number, world, trace, pid, limits)
        yield from rank.events()


def _window(world: World, window: tuple[int, int] | None) -> dict[int, tuple[float, float]]:
    """Of each rank when these steps begin and end; nothing if there are no steps."""
    if window is None:
        return {}
    steps, found_by = stepping.boundaries(world.traces)
    # A mark ends a step, and nothing tells where the first one begins.
    start = [-math.inf] if found_by == stepping.MARKS else []
    result: dict[int, tuple[float, float]] = {}
    for rank, times in steps.items():
        limits = [*start, *times]
        if len(times) > 1:
            begin, end = (limits[each] if each < len(limits) else math.inf for each in window)
            result[rank] = (min(begin, times[-1]), end)
    return result


class _Rank:
    """The events of one rank in one world."""

    def __init__(
        self,
        layout: Layout,
        number: int,
        world: World,
        trace: RankTrace,
        pid: int,
        limits: tuple[float, float],
    ) -> None:
        self._world = world
        self._number = number
        self._trace = trace
        self._pid = pid
        self._limits = limits
        self._clock = world.clocks[trace.host]
        self._shift = world.epoch - layout.base
        self._pids = layout.pids

    def _ts(self, time: float) -> float:
        return round((self._clock(time) + self._shift) / 1000, 3)

    def _slice(self, lane: int, name: str, begin: float, end: float, **args: Any) -> Event:
        start = self._ts(begin)
        event: Event = {
            "ph": "X",
            "name": name,
            "pid": self._pid,
            "tid": self._pid * 10 + lane,
            "ts": start,
            "dur": round(max(0.0, self._ts(end) - start), 3),
        }
        if args:
            event["args"] = args
        return event

    def _shown(self, begin: float, end: float) -> bool:
        return end >= self._limits[0] and begin <= self._limits[1]

    def events(self) -> Iterator[Event]:
        yield from self._steps()
        yield from self._waits()
        yield from self._operations()
        yield from self._waiting_for_ranks()
        yield from self._marks()
        yield from self._failure()

    def _steps(self) -> Iterator[Event]:
        before: int | None = None
        for step in self._trace.steps:
            if before is not None and self._shown(before, step.time):
                yield self._slice(0, f"step {step.number}", before, step.time)
            before = step.time

    def _waits(self) -> Iterator[Event]:
        """Of several threads only what is not covered by another: a lane has no room for two."""
        until = float("-inf")
        waits = [(wait.begin, wait.end, f"wait {wait.name}") for wait in self._trace.waits]
        folds = self._trace.folds
        waits += [(fold.begin, fold.end, f"wait {fold.name} ({fold.count} times)") for fold in folds]
        # Nobody waits for these, but arrows of a late rank begin where it submits.
        waits += [
            (op.submit, op.end, f"in flight {op.tensors[0].name}")
            for op in self._trace.operations.values()
            if op.calls_back and op.submit is not None and op.end is not None
        ]
        for start, end, text in sorted(waits):
            begin = max(until, start)
            if end > begin and self._shown(begin, end):
                yield self._slice(1, text, begin, end)
            until = max(until, end)

    def _operations(self) -> Iterator[Event]:
        until = float("-inf")
        flight: list[tuple[float, int]] = []
        every: list[Operation | Fold] = [*self._trace.operations.values(), *self._trace.folds]
        for op in sorted(every, key=lambda each: each.begin):
            if isinstance(op, Fold):
                begin = max(until, op.begin)
                if op.end > begin and self._shown(begin, op.end):
                    yield self._fold(op, begin)
                    until = op.end
                continue
            end = op.end if op.end is not None else self._trace.last
            begin = max(until, op.begin)
            if end <= begin or not self._shown(begin, end):
                continue
            yield self._slice(2, kind_name(op.kind), begin, end, **self._about(op))
            for phase, phase_begin, phase_end, amount in op.phases:
                # Those of the network run beside the others, where an operation goes in blocks.
                if phase_begin >= begin and phase < len(PHASES):
                    lane = 3 if phase == NETWORK else 2
                    yield self._slice(lane, PHASES[phase], phase_begin, min(phase_end, end), bytes=amount)
            seconds = (end - begin) / 1e9
            rate = {"GB/s": round(op.bytes / seconds / 1e9, 3) if seconds else 0.0}
            yield self._counter("GB/s", begin, rate)
            yield self._counter("GB/s", end, {"GB/s": 0})
            for tensor in op.tensors:
                if tensor.submit is not None:
                    flight += [(tensor.submit, tensor.bytes), (end, -tensor.bytes)]
            until = end
        total = 0
        for time, change in sorted(flight):
            total += change
            yield self._counter("bytes in flight", time, {"bytes": total})

    def _fold(self, fold: Fold, begin: float) -> Event:
        """One slice for all of them."""
        each = fold.sums.get("whole", 0) / fold.count
        about = {
            "tensor": fold.name,
            "count": fold.count,
            "bytes": fold.bytes,
            "mean_us": round(each / 1000, 3),
            "longest_us": round(fold.longest / 1000, 3),
            "world": self._number,
        }
        return self._slice(2, f"{kind_name(fold.kind)} ({fold.count} times)", begin, fold.end, **about)

    def _failure(self) -> Iterator[Event]:
        """Where the rank's records end because of one."""
        if not self._trace.reason and not self._trace.torn:
            return
        yield {
            "ph": "i",
            "s": "p",
            "name": "failure" if self._trace.reason else "the records end here",
            "pid": self._pid,
            "tid": self._pid * 10 + 1,
            "ts": self._ts(self._trace.last),
            **({"args": {"reason": self._trace.reason}} if self._trace.reason else {}),
        }

    def _counter(self, name: str, time: float, values: dict[str, float]) -> Event:
        return {"ph": "C", "name": name, "pid": self._pid, "ts": self._ts(time), "args": values}

    def _about(self, op: Operation) -> dict[str, Any]:
        first = op.tensors[0].name if op.tensors else ""
        known = self._trace.names.get(first)
        algorithm = ALGORITHMS[op.algorithm] if op.algorithm < len(ALGORITHMS) else ""
        return {
            "tensor": first,
            "tensors": len(op.tensors),
            "bytes": op.bytes,
            **({"dtype": DTYPES[known.dtype]} if known is not None and known.dtype < len(DTYPES) else {}),
            "shape": list(known.shape) if known is not None else [],
            **({"algorithm": algorithm} if algorithm else {}),
            "operation": f"{op.key.set}.{op.key.generation}.{op.key.number}",
            "world": self._number,
        }

    def _waiting_for_ranks(self) -> Iterator[Event]:
        """From this rank's submit to the last rank's, with an arrow from there."""
        arrivals = self._world.traces[min(self._world.traces)].arrivals
        until = float("-inf")
        for key, op in self._trace.operations.items():
            arrival = arrivals.get(key)
            if arrival is None or not arrival.ready or op.submit is None:
                continue
            late = max(arrival.ready, key=lambda each: arrival.ready[each])
            other = self._world.traces.get(late)
            source = None if other is None else other.operations.get(key)
            if late == self._trace.rank or other is None or source is None or source.submit is None:
                continue
            there = self._world.clocks[other.host](source.submit)
            end = there - self._clock.offset(there)
            begin = max(until, op.submit)
            if end - begin < _LATE or not self._shown(begin, end):
                continue
            first = min(arrival.ready.values())
            lags = {str(rank): round((at - first) / 1e6, 3) for rank, at in sorted(arrival.ready.items())}
            yield self._slice(
                4, f"waiting for rank {late}", begin, end, lag_ms=round((end - begin) / 1e6, 3), lags_ms=lags
            )
            yield from self._arrow(key, other, source.submit, end)
            until = end

    def _arrow(self, key: Key, other: RankTrace, submit: int, end: float) -> Iterator[Event]:
        """From the late rank's wait, which begins where it submits, to the end of ours."""
        name = {"ph": "s", "cat": "late", "name": "late"}
        identity = f"{self._number}.{key.set}.{key.generation}.{key.number}.{self._trace.rank}"
        clock = self._world.clocks[other.host]
        from_pid = self._pids[other.host, other.pid]
        start = round((clock(submit) + self._shift) / 1000, 3)
        yield {**name, "id": identity, "pid": from_pid, "tid": from_pid * 10 + 1, "ts": start}
        yield {
            **name,
            "ph": "f",
            "bp": "e",
            "id": identity,
            "pid": self._pid,
            "tid": self._pid * 10 + 4,
            "ts": self._ts(end),
        }

    def _marks(self) -> Iterator[Event]:
        """Of marks that overlap without one being within the other, the later one is cut."""
        open_ends: list[float] = []
        for mark in sorted(self._trace.marks, key=lambda each: (each.begin, -each.end)):
            if not self._shown(mark.begin, mark.end):
                continue
            while open_ends and open_ends[-1] <= mark.begin:
                open_ends.pop()
            end = min([mark.end, *open_ends[-1:]])
            if mark.end == mark.begin:
                yield {
                    "ph": "i",
                    "s": "t",
                    "name": mark.name,
                    "pid": self._pid,
                    "tid": self._pid * 10 + 5,
                    "ts": self._ts(mark.begin),
                }
                continue
            open_ends.append(end)
            yield self._slice(5, mark.name, mark.begin, end)


def write(
    worlds: list[World], embedded: dict[str, Any], window: tuple[int, int] | None = None
) -> Iterator[str]:
    """The file in pieces. ``embedded`` goes to its end, on a line of its own."""
    layout = Layout(worlds, window)
    yield f'{{"displayTimeUnit": "ms", "baseTimeNanoseconds": {layout.base}, "traceEvents": [\n'
    separator = ""
    for event in layout.events():
        yield separator + json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        separator = ",\n"
    yield '\n],\n"horovod": ' + json.dumps(embedded, separators=(",", ":")) + "}\n"
