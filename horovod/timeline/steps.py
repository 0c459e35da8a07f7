"""Where one step of a training ends and the next begins."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping

from horovod.timeline.trace import RankTrace

MARKS = "step marks"
SKIPPED = 10  # at the start: caches fill, functions are compiled
_FEWEST = 3
_CUT = 0.1  # of the recurrences of a name, which a rank that was killed may lack


def boundaries(traces: Mapping[int, RankTrace]) -> tuple[dict[int, list[int]], str]:
    """For each rank the times between its steps, as many on all, and how they were found.

    From marks of the optimizer where all ranks have them; else from the recurrence of a name. No
    times at all if neither tells.
    """
    marked = {rank: [step.time for step in trace.steps] for rank, trace in traces.items()}
    if all(len(times) >= _FEWEST for times in marked.values()):
        return _even(marked), MARKS
    anchor = _anchor(traces)
    if anchor is None:
        return {rank: [] for rank in traces}, "no step was found: no name recurs, and nothing marks them"
    recurring = {rank: _recurrences(trace, anchor) for rank, trace in traces.items()}
    return _even(recurring), f"recurrences of {anchor}"


def measured(times: list[int]) -> list[tuple[int, int]]:
    """The steps that count: without the first ones."""
    steps = list(itertools.pairwise(times))
    return steps[min(SKIPPED, len(steps) // 2) :]


def _even(times: dict[int, list[int]]) -> dict[int, list[int]]:
    count = min(len(each) for each in times.values())
    return {rank: each[:count] for rank, each in times.items()}


def _recurrences(trace: RankTrace, anchor: str) -> list[int]:
    """When it was submitted; those of a fold as if at even distances."""
    times = [time for time, name, _ in trace.submits if name == anchor]
    for fold in trace.folds:
        if fold.name == anchor:
            length = fold.end - fold.begin
            times += (fold.begin + length * index // fold.count for index in range(fold.count))
    return sorted(times)


def _counts(trace: RankTrace) -> Counter[str]:
    counts = Counter(name for _, name, _ in trace.submits)
    for fold in trace.folds:
        counts[fold.name] += fold.count
    return counts


def _anchor(traces: Mapping[int, RankTrace]) -> str | None:
    """A name that all ranks submit as often as most names: once in every step."""
    counts = [_counts(trace) for trace in traces.values()]
    # The last records of a killed rank are missing, and the others had perhaps begun what it never had.
    cut = any(trace.torn or trace.reason for trace in traces.values())
    common: dict[str, int] = {}
    for name in counts[0]:
        least, most = (pick(each[name] for each in counts) for pick in (min, max))
        if most - least <= (1 + most * _CUT if cut else 0):
            common[name] = least
    rounds = Counter(count for count in common.values() if count >= _FEWEST)
    if not rounds:
        return None
    usual = max(rounds, key=lambda count: (rounds[count], count))
    return next(name for name, count in common.items() if count == usual)
