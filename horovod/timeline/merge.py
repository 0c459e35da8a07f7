"""One timeline out of the parts of all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from horovod.timeline import breakdown
from horovod.timeline.clocks import HostClock, align
from horovod.timeline.records import Part, epoch_shift, worlds
from horovod.timeline.trace import RankTrace, build

_QUICK_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
_APART = 10**9  # ns; ranks write their headers at different times, and the time of day is corrected meanwhile


@dataclass
class World:
    """The ranks of one world, and their clocks."""

    traces: dict[int, RankTrace]
    clocks: dict[str, HostClock]
    transport: str
    size: int
    reason: str  # why it came after another one, if that is known
    epoch: int  # what to add to rank 0's clock for nanoseconds since 1970
    doubts: list[str]  # about the clocks, each a sentence

    @property
    def missing(self) -> list[int]:
        """Ranks without records."""
        return [rank for rank in range(self.size) if rank not in self.traces]

    def notes(self) -> list[str]:
        """What a reader should know about the clocks and the records."""
        found = [f"The clock of {host} is {clock.note}." for host, clock in self.clocks.items() if clock.note]
        found += self.doubts
        if self.missing:
            found.append(f"There are no records of rank {', '.join(map(str, self.missing))}.")
        return found

    def explain(self) -> breakdown.Result:
        """Where the time went. ValueError if there are no steps."""
        return breakdown.analyse(self.traces, self.clocks, self.transport)


def merged(parts: Iterable[Part]) -> list[World]:
    """The worlds of a job in their order, each by the clock of its first rank's host."""
    return [_world(world) for world in worlds(parts) if world]


def _world(parts: Mapping[int, Part]) -> World:
    traces = {rank: build(parts[rank]) for rank in sorted(parts)}
    first = parts[min(parts)]
    reference = epoch_shift(first.header)
    guesses = {part.host: float(epoch_shift(part.header) - reference) for part in parts.values()}
    return World(
        traces,
        align(traces, guesses),
        str(first.header.get("transport", "")),
        int(first.header.get("size", len(parts))),
        str(first.header.get("reason", "")),
        reference,
        [*_slow_clocks(parts), *_clocks_apart(parts)],
    )


def _slow_clocks(parts: Mapping[int, Part]) -> Iterator[str]:
    for host, source in {part.host: str(part.header.get("clock", "")) for part in parts.values()}.items():
        if source and source not in _QUICK_CLOCKS:
            yield (
                f"The clock source of {host} is {source}, which takes long to read, so small operations took "
                "less time than it seems (horovodrun --doctor)."
            )


def _clocks_apart(parts: Mapping[int, Part]) -> Iterator[str]:
    """Containers may have a monotonic clock of their own, but not the time of day."""
    for host in dict.fromkeys(part.host for part in parts.values()):
        shifts = {rank: epoch_shift(part.header) for rank, part in parts.items() if part.host == host}
        if max(shifts.values()) - min(shifts.values()) > _APART:
            yield (
                f"The clocks of ranks {', '.join(map(str, sorted(shifts)))} of {host} are apart (time "
                "namespaces of containers?), so their times can't be compared."
            )


def longest(found: Iterable[World]) -> World:
    """The world with the most operations: the one worth an explanation."""
    return max(found, key=lambda world: sum(trace.count for trace in world.traces.values()))
