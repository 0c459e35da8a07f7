"""Folded operations: the explanation is that of the same operations one by one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from synthetic import MS, START, US, Host, Job, Rank
from test_timeline_merge import check_nesting

from horovod.timeline import records as r
from horovod.timeline.breakdown import Result, _median, analyse
from horovod.timeline.chrome import Layout
from horovod.timeline.clocks import align
from horovod.timeline.merge import longest, merged
from horovod.timeline.records import Part, read_parts, write_part
from horovod.timeline.trace import build

OPERATIONS = 50  # in a step, one after the other


def parts(
    folded: bool, marks: bool, late: Callable[[int, int], int], ranks: int = 3, steps: int = 20
) -> list[Part]:
    """Steps of operations that take 3 µs. ``late(rank, operation)``: so many ns a rank comes later."""
    random.seed(2)
    everyone = [Rank(n, ranks, Host("a"), ["a"] * ranks) for n in range(ranks)]
    now, number = float(START), 0
    for step in range(steps):
        sums = [dict.fromkeys(r.FOLD_TIMES, 0) for _ in everyone]
        lags = [[0, 0, 0] for _ in everyone]
        first, start, ends = number + 1, [0.0] * ranks, [0.0] * ranks
        for index in range(OPERATIONS):
            number += 1
            comes = [now + late(n, number) + random.randrange(500) for n in range(ranks)]
            ready = max(comes)
            release, begin, end = ready + 200, ready + 500, ready + 2500
            latest = comes.index(ready)
            lags[latest][0] += 1
            for n, rank in enumerate(everyone):
                lags[n][1] += int(ready - comes[n])
                lags[latest][2] += int(ready - comes[n])
                if index == 0:
                    start[n] = comes[n]
                ends[n] = end
                spans = (end - comes[n], 2000, end - comes[n], begin - comes[n], 2000, 0, 200)
                for which, span in zip(r.FOLD_TIMES, spans, strict=True):
                    sums[n][which] += int(span)
                if folded:
                    continue
                name = rank.name("often")
                run = {"operation": number, "name": name, "bytes": 4}
                rank.add(comes[n], r.SUBMIT, name=name, bytes=4, argument=number)
                rank.add(comes[n], r.WAIT_BEGIN, name=name, extra=1, argument=number)
                everyone[0].add(comes[n], r.READY, name=everyone[0].name("often"), argument=n)
                if n == ranks - 1:
                    released = {"operation": number, "name": everyone[0].name("often"), "argument": 1}
                    everyone[0].add(release, r.RELEASE, **released)
                rank.add(begin, r.RUN_BEGIN, argument=1, **run)
                rank.add(begin, r.TENSOR, argument=number, **run)
                rank.add(end, r.RUN_END, extra=1, **run)
                rank.add(end, r.WAIT_END, name=name, extra=1, argument=number)
            now = end + 1000
        for n, rank in enumerate(everyone):
            if folded:
                about = {"operation": first, "name": rank.name("often")}
                length = rank.host(ends[n]) - rank.host(start[n])
                rank.add(start[n], r.FOLD, extra=1 << 8, bytes=4, argument=OPERATIONS << 32 | length, **about)
                for which, name in enumerate(r.FOLD_TIMES):
                    rank.add(ends[n], r.FOLD_TIME, extra=which, bytes=sums[n][name], argument=7000, **about)
                for other, (last, waited, caused) in enumerate(lags) if n == 0 else ():
                    lag = {"extra": other, "operation": last, "bytes": waited, "argument": caused}
                    rank.add(ends[n], r.FOLD_RANK, name=about["name"], **lag)
            if marks:
                rank.add(now, r.STEP, name=rank.name("step", True), bytes=step + 1)
        now += 40 * US
    return [read_parts(write_part(rank.part()), "synthetic")[0] for rank in everyone]


def explained(made: list[Part]) -> Result:
    traces = {part.rank: build(part) for part in made}
    return analyse(traces, align(traces, {}), "shm")


def nobody(rank: int, operation: int) -> int:
    return 0


def second(rank: int, operation: int) -> int:
    return 4000 if rank == 1 else 0


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("late", [nobody, second])
def test_folded_or_not_the_explanation_is_the_same(marks: bool, late: Callable[[int, int], int]) -> None:
    alone, folded = explained(parts(False, marks, late)), explained(parts(True, marks, late))
    assert folded.count == alone.count and folded.found_by == alone.found_by
    # Without marks each recurrence is a step, and the first ten do not count: those of a fold are its means.
    near = 0.01 if marks else 0.03
    assert folded.step == pytest.approx(alone.step, rel=near)
    assert folded.operations == pytest.approx(alone.operations, rel=near)
    assert folded.step_bytes == pytest.approx(alone.step_bytes, rel=near)
    assert folded.small == pytest.approx(alone.small, rel=near) and folded.once == alone.once == 0
    for (size, count, *times), known in zip(folded.classes, alone.classes, strict=True):
        assert size == known[0] and count == pytest.approx(known[1], rel=near)
        assert times == pytest.approx(known[2:], rel=near)
    assert folded.hidden == pytest.approx(alone.hidden, abs=0.01 * alone.step)
    assert folded.small_seconds == pytest.approx(alone.small_seconds, rel=0.8)
    for part, value in alone.parts.items():
        assert folded.parts[part] == pytest.approx(value, abs=near * alone.step), part
    for rank, value in alone.charged.items():
        assert folded.charged[rank] == pytest.approx(value, abs=near * alone.step), rank
    for each in folded.ranks:
        assert sum(each.parts.values()) == pytest.approx(folded.step, rel=0.01)
        assert all(value >= 0 for value in each.parts.values())
    assert folded.top[0][0] == "often" and folded.top[0][1] == pytest.approx(alone.top[0][1], rel=near)
    if late is second:
        assert max(folded.charged, key=lambda rank: folded.charged[rank]) == 1
        assert folded.charged[1] > 0.3 * folded.step


def first(rank: int, operation: int) -> int:
    return 4000 if rank == 0 else 0


@pytest.mark.parametrize("folding", [{0}, {1}, {0, 1}, {1, 2}])
@pytest.mark.parametrize("late", [nobody, first, second])
def test_ranks_fold_each_for_itself(folding: set[int], late: Callable[[int, int], int]) -> None:
    """What one of them has folded may have been slow, or interrupted, on another."""
    alone, folded = parts(False, True, late), parts(True, True, late)
    mixed = explained([(folded if rank in folding else alone)[rank] for rank in range(3)])
    all_alone = explained(alone)
    for here, there in zip(mixed.ranks, all_alone.ranks, strict=True):
        for part, value in there.parts.items():
            assert here.parts[part] == pytest.approx(value, abs=0.01 * all_alone.step), (here.rank, part)
    for rank, value in all_alone.charged.items():
        assert mixed.charged[rank] == pytest.approx(value, abs=0.01 * all_alone.step), rank


def test_nobody_is_late_for_those_who_do_not_wait() -> None:
    """Operations that were submitted long before they were waited for."""
    made = parts(True, True, second)
    for part in made:
        part.records = [
            record._replace(bytes=0)
            if record.kind == r.FOLD_TIME and r.FOLD_TIMES[record.extra] == "before"
            else record
            for record in part.records
        ]
    result = explained(made)
    assert result.parts["late"] == 0 and not any(result.charged.values())


def test_a_rank_that_waited_in_a_fold_is_not_blamed() -> None:
    """Rank 1 comes 10 ms late to each step, of which it was blocked for 9 by others."""

    def waited_for(folds: bool) -> float:
        job = Job([Host("a")] * 2, compute=lambda rank, step: (40 + 10 * rank) * MS)
        made = job.parts()
        (name,) = (number for number, each in made[1].names.items() if each.text == "grad.0")
        ends = [record.time for record in made[1].records if record.kind == r.STEP]
        for number, begin in enumerate(ends if folds else ()):
            fold = r.Record(begin + 40 * MS, 100 * number, 1, 0, name, r.FOLD, 1 << 8, 4, 100 << 32 | 10 * MS)
            before = fold._replace(kind=r.FOLD_TIME, extra=r.FOLD_TIMES.index("before"), bytes=9 * MS)
            made[1].records += [fold, before]
        return explained(made).charged[1]

    assert waited_for(False) == pytest.approx(10 * MS, rel=0.02)
    assert waited_for(True) == pytest.approx(1 * MS, rel=0.2)


def test_the_world_that_is_explained_is_that_with_the_most_operations() -> None:
    """Folded or not."""
    short, long = merged(parts(False, True, nobody)), merged(parts(True, True, nobody, steps=40))
    assert longest([*short, *long]) is long[0] and longest([*long, *short]) is long[0]


def test_a_wait_of_another_thread_is_not_counted_twice() -> None:
    """While one thread waits for something long, another one runs small operations."""
    made = parts(True, True, nobody)
    for part in made:
        begin, end = part.records[0].time, part.records[-1].time
        wait = r.Record(begin, 0, 0, 0, 1, r.WAIT_BEGIN, 2, 0, 999)
        part.records = [wait, *part.records, wait._replace(time=end, kind=r.WAIT_END)]
    result = explained(made)
    assert result.parts["compute"] == pytest.approx(0, abs=1)
    assert sum(result.parts.values()) == pytest.approx(result.step)


def test_a_viewer_shows_how_many() -> None:
    worlds = merged(parts(True, True, nobody))
    events = list(Layout(worlds).events())
    check_nesting(events)
    shown = [event for event in events if event["name"] == f"ALLREDUCE ({OPERATIONS} times)"]
    assert len(shown) == 3 * 20 and shown[0]["args"]["longest_us"] == 7.0
    assert all(event["args"]["mean_us"] == pytest.approx(2.7, abs=0.2) for event in shown)
    assert any(event["name"] == f"wait often ({OPERATIONS} times)" for event in events)
    names = Counter(event["name"] for event in Layout(worlds, window=(5, 10)).events())
    assert names["step 6"] == 3 and names[f"ALLREDUCE ({OPERATIONS} times)"] == 3 * 5


def test_a_median_of_values_that_come_many_times() -> None:
    assert _median([(5, 1), (1, 2)]) == 1
    assert _median([(5, 2), (1, 2)]) == 3
    assert _median([(3, 1)]) == 3
