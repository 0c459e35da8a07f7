"""Timing of operations that all ranks take part in.

Whatever is to be compared runs alternately in one loop: the machine's mood changes by the minute, and a
comparison must not depend on it. An operation takes as long as on its slowest rank.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import horovod.numpy as hvd

Seconds = NDArray[np.float64]

LEAST_ROUNDS = 15  # a median of fewer says little
_MOST_ROUNDS = 5000
_WARM_UPS = 2


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Contender:
    """One of several things to time. `prepare` runs before each burst and is not timed."""

    name: str
    run: Callable[[], object]
    prepare: Callable[[], object] = _nothing


@dataclass(frozen=True)
class Pace:
    """How often to measure: so many rounds, or as many as fit into so many seconds. One burst per round."""

    rounds: int | None
    seconds: float
    burst: int = 1


@dataclass(frozen=True)
class Summary:
    """What is left of many timings. Times are seconds."""

    count: int
    min: float
    p50: float
    p99: float
    mean: float

    @staticmethod
    def of(times: Seconds) -> Summary:
        p50, p99 = np.percentile(times, (50, 99))
        return Summary(len(times), float(times.min()), float(p50), float(p99), float(times.mean()))


def burst_for(size: int) -> int:
    """Runs in a row for an operation on `size` bytes: more where a single one would be lost in the noise."""
    return 10 if size <= 1 << 16 else 5 if size <= 1 << 20 else 2 if size <= 1 << 24 else 1


def interleave(contenders: Sequence[Contender], pace: Pace) -> dict[str, Summary]:
    """Times the contenders alternately, on all ranks at once. Collective: all ranks must call it alike."""
    with _without_garbage_collection():
        for _ in range(_WARM_UPS):
            for contender in contenders:
                _burst(contender, pace.burst)
        times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        for number in _rounds(pace):
            # Each in turn goes first, so that none always runs in the wake of the same other one.
            first = number % len(contenders)
            for contender in (*contenders[first:], *contenders[:first]):
                times[contender.name] += _burst(contender, pace.burst)
    return {
        name: Summary.of(hvd.allreduce(np.array(mine), name=f"bench.slowest.{name}", op=hvd.Max))
        for name, mine in times.items()
    }


def _rounds(pace: Pace) -> Iterator[int]:
    """Counts the rounds. When the time is up is for rank 0 to say: all must make the same number."""
    if pace.rounds is not None:
        yield from range(pace.rounds)
        return
    end = time.perf_counter() + pace.seconds
    for start in range(0, _MOST_ROUNDS, LEAST_ROUNDS):
        yield from range(start, start + LEAST_ROUNDS)
        over = np.array([time.perf_counter() >= end])
        if hvd.broadcast(over, 0, name="bench.over")[0]:
            return


def _burst(contender: Contender, length: int) -> list[float]:
    contender.prepare()
    run, clock = contender.run, time.perf_counter
    hvd.barrier()
    if length > 1:
        run()  # takes up the skew with which the ranks leave the barrier, and warms the caches
    times = []
    for _ in range(length):
        start = clock()
        run()
        times.append(clock() - start)
    hvd.barrier()  # what this rank does next must not slow down those that are still measuring
    return times


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def random_array(count: int, dtype: np.dtype[Any], rank: int) -> NDArray[Any]:
    """Small numbers whose sums over a few ranks are exact in every dtype, different on each rank."""
    generator = np.random.default_rng(rank)
    # A short pattern repeated: drawing 100 million numbers would take longer than measuring.
    pattern = generator.integers(1, 8, 4099)
    values = pattern if dtype.kind in "iu" else pattern / 256
    return np.resize(values.astype(dtype), count)


def memcpy(array: NDArray[Any]) -> Contender:
    """A copy of the same bytes on all ranks at once: the yardstick for anything that moves memory."""
    target = np.empty_like(array)
    return Contender("memcpy", lambda: np.copyto(target, array))
