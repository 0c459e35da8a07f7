"""The model of a job: a pure function of events and summaries."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from horovod._figures.model import Model
from horovod._figures.prometheus import exposition
from horovod.runner.dashboard.live import LiveModel

START = {"event": "job_start", "time": 100.0, "np": 2, "hosts": {"a": [0], 'b "x"\\': [1]}, "command": ["t"]}


def summary(rank: int, steps: int, blocked: float, late: float = 0.0) -> dict[str, Any]:
    return {
        "rank": rank,
        "age": 0.25,
        "steps": steps,
        "operations": 2 * steps,
        "bytes": 1000 * steps,
        "blocked_ns": int(blocked * 1e9),
        "cpu_ns": int(steps * 0.05 * 1e9),
        "resident_bytes": 12_345_678_901,
        "pending": 1,
        "running": "grad.1",
        "running_ns": 2_000_000,
        "last_ready": 7 * rank,
        "late_ns": int(late * 1e9),
        "rtt_ns": 30_000,
        "step_ns": 100_000_000,
    }


def started() -> Model:
    model = Model()
    model.event(START)
    for rank, host in ((0, "a"), (1, 'b "x"\\')):
        model.event({"event": "rank_started", "time": 101.0, "rank": rank, "host": host, "pid": 40 + rank})
    return model


def running() -> Model:
    model = started()
    for second in range(10):
        both = [summary(0, 10 * second, 0.2 * second), summary(1, 10 * second, 0.4 * second, 0.1 * second)]
        model.summaries(110.0 + second, both, {"loss": 0.5})
    return model


def state(model: Model, rank: int, now: float = 119.5) -> str:
    return str(model.snapshot(now)["ranks"][rank]["state"])


def test_states_of_a_rank() -> None:
    model = Model()
    model.event(START)
    assert state(model, 1) == "starting"
    model = started()
    assert state(model, 1) == "running"
    for waited_for in (True, False):
        model.summaries(103.0, [summary(0, 1, 0.0), {**summary(1, 1, 0.0), "waited_for": waited_for}], {})
        assert (state(model, 0), state(model, 1)) == ("running", "stalled" if waited_for else "running")
    model.event({"event": "rank_exit", "time": 105.0, "rank": 1, "code": -9, "what": "was ended by signal 9"})
    model.event({"event": "rank_exit", "time": 105.0, "rank": 0, "code": 0, "what": "exited with code 0"})
    assert (state(model, 1), state(model, 0)) == ("failed", "ended")
    lost = started()
    lost.event({"event": "host_lost", "time": 105.0, "host": "b", "ranks": [1]})
    assert state(lost, 1) == "failed"


def test_a_rank_in_an_operation_that_hangs_is_stalled() -> None:
    model = running()
    about = {"tensors": ["allreduce.x"], "missing": [{"rank": 0}]}
    hang = {"event": "hang", "time": 106.0, **about, "ready": [1]}
    over = {"event": "stall_resolved", "time": 107.0, **about, "ready": []}
    model.event(hang)
    assert (state(model, 0), state(model, 1)) == ("running", "stalled")
    assert model.snapshot(119.5)["ranks"][1]["what"] == "allreduce.x does not end"
    model.event({**over, "tensors": ["allreduce.y"]})
    assert state(model, 1) == "stalled"
    model.event(over)
    assert state(model, 1) == "running" and not model.snapshot(119.5)["ranks"][1]["what"]
    model.event(hang)
    model.event({"event": "rank_exit", "time": 108.0, "rank": 1, "code": -9, "what": "was ended by signal 9"})
    assert state(model, 1) == "failed"
    model.event({"event": "reset", "time": 109.0, "size": 2, "reason": "rank 1 failed"})
    for rank in (0, 1):
        model.event({"event": "rank_started", "time": 110.0, "rank": rank, "host": "a", "pid": 50 + rank})
    assert (state(model, 0), state(model, 1)) == ("running", "running")


def test_rates_come_from_counters() -> None:
    snapshot = running().snapshot(119.5)
    assert snapshot["rates"]["steps_per_second"] == pytest.approx(10)
    assert snapshot["rates"]["exposed"] == pytest.approx(0.2)
    assert snapshot["rates"]["cpu"] == pytest.approx(0.5)
    rank = snapshot["ranks"][1]
    assert rank["exposed"] == pytest.approx(0.4) and rank["memory"] == 12_345_678_901 and rank["steps"] == 90
    assert rank["late"] == pytest.approx(0.1) and snapshot["ranks"][0]["late"] == 0
    assert rank["running"] == "grad.1" and rank["running_seconds"] == pytest.approx(0.002)
    assert len(snapshot["history"]) == 10
    assert snapshot["history"][-1][1:] == [pytest.approx(10), pytest.approx(0.3), pytest.approx(10_000)]
    assert snapshot["stragglers"][0]["rank"] == 1 and len(snapshot["stragglers"]) == 1


def test_silence_is_told_and_an_end_is_not_silence() -> None:
    model = running()
    assert model.snapshot(120.0)["silent"] is False
    assert model.snapshot(124.0)["silent"] is True
    model.event({"event": "job_end", "time": 125.0, "code": 0, "seconds": 25.0})
    assert model.snapshot(130.0)["silent"] is False and model.snapshot(130.0)["over"] is True


def test_prometheus_reads_the_text() -> None:
    histogram = {"buckets": {"2e-06": 1, "+Inf": 3}, "sum": 0.5, "count": 3}
    metrics = {
        "operations_total": {"allreduce": 7},
        "network_bytes_total": {"sent": 5.0, "received": 6.0},
        "stalls_total": 2.0,
        "operation_seconds": {"allreduce": {"4KiB": histogram}},
        "step_seconds": histogram,
        "steps_total": 1.0,  # known of all ranks
        "tuning": {"anything": 1},
    }
    text = exposition(running().snapshot(119.5), metrics)
    families = {f.name: f for f in text_string_to_metric_families(text)}
    assert len(families) == len(list(text_string_to_metric_families(text)))
    (operations,) = families["horovod_operations"].samples
    assert operations.labels == {"rank": "0", "host": "a", "kind": "allreduce"} and operations.value == 7
    assert {s.labels["direction"]: s.value for s in families["horovod_network_bytes"].samples} == {
        "sent": 5,
        "received": 6,
    }
    seconds = families["horovod_operation_seconds"]
    assert seconds.type == "histogram"
    assert [(s.name[25:], s.labels.get("le"), s.value) for s in seconds.samples] == [
        ("_bucket", "2e-06", 1),
        ("_bucket", "+Inf", 3),
        ("_sum", None, 0.5),
        ("_count", None, 3),
    ]
    assert seconds.samples[0].labels["kind"] == "allreduce" and seconds.samples[0].labels["size"] == "4KiB"
    assert families["horovod_blocked_seconds"].samples[1].value == pytest.approx(3.6)
    steps = {sample.labels["rank"]: sample for sample in families["horovod_steps"].samples}
    assert steps["1"].value == 90 and steps["1"].labels["host"] == 'b "x"\\'
    assert families["horovod_steps"].type == "counter"
    assert [sample.value for sample in families["horovod_up"].samples] == [1, 1]
    assert families["horovod_resident_bytes"].samples[0].value == 12_345_678_901
    assert families["horovod_exposed_ratio"].samples[1].value == pytest.approx(0.4)
    labels = {name for f in families.values() for sample in f.samples for name in sample.labels}
    assert labels == {"rank", "host", "size", "kind", "direction", "le"}  # never a tensor's name


def test_progress_is_an_event_every_ten_seconds() -> None:
    told: list[dict[str, Any]] = []
    live = LiveModel(told.append)
    for second in range(25):
        live.summaries(100.0 + second, [summary(0, 10 * second, 0.0)], {}, {})
    assert [event["steps"] for event in told] == [100, 200]
    assert told[0]["rate"] == pytest.approx(10)
    assert live.totals == {"steps": 240, "bytes": 240_000}


def test_what_was_counted_before_a_reset_counts() -> None:
    """Of an elastic job: an engine of a new world begins from 0."""
    told: list[dict[str, Any]] = []
    live = LiveModel(told.append)
    for second in range(12):
        live.summaries(100.0 + second, [summary(0, 10 * second, 0.0)], {}, {})
    live.event({"event": "reset", "generation": 2, "size": 1, "reason": "", "time": 112.0})
    live.event({"event": "rank_started", "rank": 0, "host": "a", "pid": 1, "time": 112.0})
    before = {"steps": 110, "bytes": 110_000}
    for second in range(12):
        live.summaries(112.0 + second, [{**summary(0, 5 * second, 0.0), "before": before}], {}, {})
    assert live.totals == {"steps": 165, "bytes": 165_000}
    assert [event["steps"] for event in told] == [100, 150]
    assert live.snapshot()["ranks"][0]["steps"] == 165


def test_steps_that_nobody_marks_are_not_none_at_all() -> None:
    told: list[dict[str, Any]] = []
    live = LiveModel(told.append)
    for second in range(25):
        unmarked = {**summary(0, 10 * second, 0.0), "steps": 0}
        live.summaries(100.0 + second, [unmarked], {}, {})
    model = started()
    for second in range(5):
        model.summaries(110.0 + second, [{**summary(0, 0, 0.2 * second), "steps": 0}], {})
    shown = model.snapshot(114.5)
    assert told == [] and shown["rates"]["steps_per_second"] is None and shown["ranks"][0]["steps"] is None
    assert shown["rates"]["exposed"] == pytest.approx(0.2)
