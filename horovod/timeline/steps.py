"""Where one step of a training ends and the next begins."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping

from horovod.timeline.trace import RankTrace

SKIPPED = 10  # at the start: caches fill, functions are compiled
_FEWEST = 3


def boundaries(traces: Mapping[int, RankTrace]) -> tuple[dict[int, list[int]], str]:
    """For each rank the times between its steps, as many on all, and how they were found.

    From marks of the optimizer where all ranks have them; else from the recurrence of a name. No
    times at all if neither tells.
    """
    marked = {rank: [step.time for step in trace.steps] for rank, trace in traces.items()}
    if all(len(times) >= _FEWEST for times in marked.values()):
        return _even(marked), "step marks"
    anchor = _anchor(traces)
    if anchor is None:
        return {rank: [] for rank in traces}, "no step was found: no name recurs, and nothing marks them"
    recurring = {
        rank: [time for time, name, _ in trace.submits if name == anchor] for rank, trace in traces.items()
    }
    return _even(recurring), f"recurrences of {anchor}"


def measured(times: list[int]) -> list[tuple[int, int]]:
    """The steps that count: without the first ones."""
    steps = list(itertools.pairwise(times))
    return steps[min(SKIPPED, len(steps) // 2) :]


def _even(times: dict[int, list[int]]) -> dict[int, list[int]]:
    count = min(len(each) for each in times.values())
    return {rank: each[:count] for rank, each in times.items()}


def _anchor(traces: Mapping[int, RankTrace]) -> str | None:
    """A name that all ranks submit as often as most names: once in every step."""
    counts = [Counter(name for _, name, _ in trace.submits) for trace in traces.values()]
    common = {name: count for name, count in counts[0].items() if all(c[name] == count for c in counts)}
    rounds = Counter(count for count in common.values() if count >= _FEWEST)
    if not rounds:
        return None
    usual = max(rounds, key=lambda count: (rounds[count], count))
    return next(name for name, count in common.items() if count == usual)
