"""hvd.metrics(): the numbers of the engine under their names, and that they are right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from runner_util import horovodrun

from horovod import _core
from horovod.common import metrics
from horovod.common.metrics import Layout

PROGRAM = """
import time
import numpy as np
import horovod.numpy as hvd

hvd.init()
before = hvd.metrics()
for step in range(7):
    hvd.allreduce(np.ones(1000, np.float32), name="x")
    hvd.mark_step()
hvd.broadcast(np.ones(10), 0, name="y")
hvd.observe(samples=64, loss=0.25)
hvd.observe(samples=36)
now = hvd.metrics()
assert now["operations_total"]["allreduce"] - before["operations_total"]["allreduce"] == 7, now
assert now["bytes_total"]["allreduce"] - before["bytes_total"]["allreduce"] == 7 * 4000, now
assert now["operations_total"]["broadcast"] - before["operations_total"]["broadcast"] == 1
assert now["steps_total"] == 7 and now["step_seconds"]["count"] == 6, now
assert now["cache_hits_total"] >= 6 and now["cache_misses_total"] >= 2
assert now["blocked_seconds_total"] > 0
assert now["operation_seconds"]["allreduce"]["4KiB"]["count"] == 7, now
assert now["operation_seconds"]["broadcast"]["4KiB"]["count"] == 1, now
assert now["queue_seconds"]["count"] == (8 if hvd.rank() == 0 else 0), now
assert now["network_bytes_total"] == {"sent": 0, "received": 0}
assert now["info"]["transport"] == "shm" and now["info"]["size"] == 2 and now["info"]["version"]
assert now["samples_total"] == 100 and now["user"] == {"loss": 0.25}
times = []
for _ in range(200):
    begin = time.perf_counter()
    hvd.metrics()
    times.append(time.perf_counter() - begin)
assert min(times) < 1e-4, min(times)
if hvd.rank() == 0:
    deadline = time.monotonic() + 30
    while sorted(hvd.metrics(all_ranks=True)["ranks"]) != [0, 1]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
else:
    try:
        hvd.metrics(all_ranks=True)
    except ValueError as error:
        assert "rank 0" in str(error)
    else:
        raise AssertionError
hvd.barrier()
hvd.shutdown()
hvd.init()
assert hvd.metrics()["operations_total"]["allreduce"] >= now["operations_total"]["allreduce"]
assert hvd.metrics()["resets_total"] == 1
hvd.allreduce(np.ones(1000, np.float32), name="x")
hvd.mark_step()
if hvd.rank() == 0:
    own = hvd.metrics(all_ranks=True)["ranks"][0]
    assert own["steps"] == 8 and own["bytes"] > 8 * 4000, own
hvd.barrier()
print("fine")
"""


EVICTIONS = """
import numpy as np
import horovod.numpy as hvd

hvd.init()
for _ in range(3):
    for name in "ab":
        hvd.allreduce(np.ones(10), name=name)
assert hvd.metrics()["cache_evictions_total"] == 0, hvd.metrics()
for _ in range(3):
    for name in "abcde":  # each one in the place of another
        hvd.allreduce(np.ones(10), name=name)
assert hvd.metrics()["cache_evictions_total"] == 13, hvd.metrics()
print("counted")
hvd.barrier()
"""


def test_evictions_are_counted(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path), "HOROVOD_CACHE_CAPACITY": "2"}
    result = horovodrun("-np", "2", sys.executable, "-c", EVICTIONS, env=env)
    assert result.returncode == 0 and result.stdout.count("counted") == 2, result.stdout + result.stderr


def test_numbers_get_their_names() -> None:
    names = ["operations.allreduce", "network_bytes.sent", "blocked_ns", "pending", "clock_offset_ns"]
    names += ["cpu_ppm", "operation_seconds.allreduce.1.count", "operation_seconds.allreduce.1.sum_ns"]
    names += ["operation_seconds.allreduce.1.0", "operation_seconds.join.0.count"]
    names += ["operation_seconds.join.0.sum_ns", "operation_seconds.join.0.0"]
    names += ["step_seconds.count", "step_seconds.sum_ns", "step_seconds.0", "step_seconds.1"]
    values = [3, 5, 2_000_000_000, 4, (1 << 64) - 5_000_000_000, 500_000, 1, 10**9, 1, 0, 0, 0]
    values += [3, 9_000_000_000, 1, 3]
    before = [10, 1, 0, 100, 7, 7] + 6 * [0] + [1, 10**9, 0, 1]
    found = Layout(names).arranged(values, before)
    assert found["operations_total"] == {"allreduce": 13} and found["network_bytes_total"] == {"sent": 6}
    assert found["blocked_seconds_total"] == pytest.approx(2.0)
    assert found["pending_operations"] == 4 and found["clock_offset_seconds"] == pytest.approx(-5.0)
    assert found["cpu_ratio"] == pytest.approx(0.5)
    endless = float("inf")
    once = {"buckets": {endless: 1}, "sum": pytest.approx(1.0), "count": 1}
    assert found["operation_seconds"] == {"allreduce": {"64KiB": once}}
    assert found["step_seconds"] == {
        "buckets": {2e-6: 1, endless: 4},
        "sum": pytest.approx(10.0),
        "count": 4,
    }


class Engine:
    """Has counted the same number of everything, on two ranks."""

    def __init__(self, number: int) -> None:
        self._number = number

    def metrics(self) -> list[int]:
        return [self._number] * len(_core.METRICS)

    def summaries(self) -> list[_core.Summary]:
        empty = dict.fromkeys(_core.Summary._fields, self._number)
        return [_core.Summary(**{**empty, "rank": rank, "name": "x"}) for rank in range(2)]


def test_nothing_falls_or_counts_twice_while_a_world_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may ask between the end of one and the beginning of the next."""
    monkeypatch.setattr(metrics, "_totals", metrics._Totals())
    steps = []
    for number in (5, 3, 4):
        engine: Any = Engine(number)
        for end in (metrics.remember, id):
            told = metrics.figures(engine)
            for name in ("steps", "bytes"):
                ranks = [each[name] + each["before"].get(name, 0) for each in told["ranks"]]
                steps.append([told["metrics"]["steps_total"], *ranks])
            assert told["metrics"]["pending_operations"] == number
            end(engine)
    assert steps == [[5] * 3] * 4 + [[8] * 3] * 4 + [[12] * 3] * 4


def test_a_new_rank_0_tells_what_it_had_counted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was another rank, which knew only itself."""
    monkeypatch.setattr(metrics, "_totals", metrics._Totals())
    engine: Any = Engine(5)
    (_, own) = engine.summaries()
    monkeypatch.setattr(engine, "summaries", lambda: [own])
    metrics.remember(engine)
    first, second = metrics.figures(Engine(3))["ranks"]  # type: ignore[arg-type]
    assert first["before"]["steps"] == 5 and second["before"] == {}


def test_they_count_what_the_program_did(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    result = horovodrun("-np", "2", sys.executable, "program.py", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("fine") == 2


def test_what_is_no_number_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON has no word for it: a loss that has become one must not end the news of the job."""
    monkeypatch.setattr(metrics, "_totals", metrics._Totals())
    metrics.observe(samples=8, loss=float("nan"), rate=float("inf"), epoch=3)
    metrics.observe(samples=float("nan"))
    assert metrics.told() == {"epoch": 3.0, "samples": 8.0, "samples_per_second": 0.0}
    metrics.observe(samples=1.7e308)
    metrics.observe(samples=1.7e308)
    assert "samples" not in metrics.told()
