"""Clocks of several hosts become one."""

from __future__ import annotations

import random

import pytest
from synthetic import MS, START, US, Host, Job

from horovod.timeline.clocks import align, violations
from horovod.timeline.records import Part
from horovod.timeline.trace import RankTrace, build


def traces_of(parts: list[Part]) -> dict[int, RankTrace]:
    return {part.rank: build(part) for part in parts}


def worst_error(job: Job, clocks: dict[str, object], end: float) -> float:
    """ns by which any host's clock is wrong at any moment of the job."""
    zero, worst = job.hosts[0], 0.0
    for host in job.hosts:
        clock = clocks[host.name]
        for share in range(101):
            true = START + (end - START) * share / 100
            worst = max(worst, abs(clock(host(true)) - zero(true)))  # type: ignore[operator]
    return worst


def end_of(job: Job, traces: dict[int, RankTrace]) -> float:
    return traces[0].last - job.hosts[0].skew


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("steps", [100, 700])
def test_skew_and_drift_are_recovered(seed: int, steps: int) -> None:
    random.seed(seed)
    delays = [random.expovariate(1 / (60 * US)) + 40 * US for _ in range(10_000)]
    hosts = [Host("a"), Host("a"), Host("b", 3_000 * MS, 80e-6), Host("c", -3_000 * MS, -80e-6)]
    job = Job(hosts, steps=steps, heartbeat=lambda number: int(delays[number % len(delays)]))
    traces = traces_of(job.parts())
    clocks = align(traces, {})
    assert worst_error(job, dict(clocks), end_of(job, traces)) < 100 * US
    assert violations(traces, clocks) == []
    assert clocks["a"].offset(START) == 0.0
    assert 0 < clocks["b"].uncertainty < 300 * US


def test_operations_correct_what_was_measured_wrongly() -> None:
    """One way is always slow: the heartbeats can't know that, the operations do."""
    hosts = [Host("a"), Host("b", 3_000 * MS, 80e-6)]
    job = Job(hosts, steps=300, transfer=200 * US)
    job.heartbeat = lambda number: 40 * US if number % 2 else 2_000 * US
    traces = traces_of(job.parts())
    clocks = align(traces, {})
    assert violations(traces, clocks) == []
    assert worst_error(job, dict(clocks), end_of(job, traces)) < 300 * US
    assert "as operations demand" in clocks["b"].note


def test_without_heartbeats_operations_are_enough() -> None:
    """The wall clocks are the first guess, here 0.7 s off."""
    hosts = [Host("a"), Host("b", 3_000 * MS, 20e-6)]
    job = Job(hosts, steps=200, transfer=300 * US)
    traces = traces_of(job.parts())
    clocks = align(traces, {"b": -2_300 * MS})
    assert violations(traces, clocks) == []
    assert worst_error(job, dict(clocks), end_of(job, traces)) < 1 * MS
    assert clocks["b"].note == "by the wall clocks"


def test_one_host_needs_nothing() -> None:
    job = Job([Host("a", 12345), Host("a", 12345)], steps=3)
    clocks = align(traces_of(job.parts()), {})
    assert list(clocks) == ["a"] and clocks["a"].uncertainty == 0.0
