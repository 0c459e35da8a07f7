"""The event log, the dashboard and the list of jobs know elastic jobs, too."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import sys
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from runner_util import horovodrun
from steps_job import StepsJob

from horovod._figures.model import Model
from horovod.runner import jobs
from horovod.runner.cli.job_list import job_list
from horovod.runner.launcher.event_log import Event, read
from horovod.runner.top import Source


def events_of(path: Path) -> list[Event]:
    with path.open("rb") as file:
        return read(file)


def counters(job: jobs.JobEntry) -> dict[tuple[object, ...], float]:
    """All that only grows in Prometheus' text, by its name and labels, which are those of ranks."""
    place = json.loads((job.path / "job.json").read_text())["dashboard"]
    connection = http.client.HTTPConnection(place["address"], place["port"], timeout=20)
    token = (job.path / "token").read_text()
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
    found = {}
    for family in text_string_to_metric_families(connection.getresponse().read().decode()):
        for sample in family.samples:
            if family.type in ("counter", "histogram"):
                found[(sample.name, *sorted(sample.labels.items()))] = sample.value
    return found


def of(found: dict[tuple[object, ...], float], name: str) -> list[float]:
    return [value for key, value in found.items() if key[0] == f"horovod_{name}_total"]


def test_a_reset_in_all_that_watches(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    log, report = tmp_path / "mine.jsonl", tmp_path / "report.html"
    flags = ["-np", "3", "--min-np", "1", "-H", "localhost:2,127.0.0.1:1", "--dashboard"]
    files = ["--event-log", str(log), "--report", str(report)]
    with contextlib.closing(StepsJob(tmp_path, *flags, *files, env=env)) as job:
        before = [note["pid"] for note in job.world(3)]
        entry = jobs.find(jobs.directory(env), None)
        assert entry.running and entry.pid == job.process.pid and entry.about["np"] == 3
        job.until(lambda: min(of(counters(entry), "blocked_seconds"), default=0) > 0.1, "all were blocked")
        counted = counters(entry)
        os.kill(before[2], signal.SIGKILL)
        job.world(2, generation=2)
        assert jobs.find(jobs.directory(env), None).about["np"] == 2
        source = Source(entry)

        def figures() -> bool:
            ranks = source.snapshot(time.time())["ranks"]
            running = [(rank["pid"], rank["state"]) for rank in ranks if rank.get("memory")]
            return running == [(pid, "running") for pid in before[:2]]

        job.until(figures, "figures of the ranks that are left")
        now = counters(entry)
        assert {key for key, value in counted.items() if now.get(key, -1) < value} == {
            key for key in counted if ("rank", "2") in key
        }
        assert of(now, "resets") == of(now, "failures") == [1]
        stacks = horovodrun("--stack-dump", env=env)
        assert stacks.returncode == 0 and stacks.stdout.count("program_steps.py") >= 2
        job.end()
    assert "ended with 0" in job_list(env) and "  2 ranks" in job_list(env)
    assert b"rank_started" in report.read_bytes()
    events = events_of(log)
    assert events == events_of(entry.path / jobs.EVENTS)
    told = ("world", "step", "stacks", "failure")  # by rank 0, at its own time
    names = [event["event"] for event in events if event["event"] not in told]
    expected = ["job_start", *["rank_started"] * 3, "rank_exit", "reset", *["rank_started"] * 2]
    assert names == [*expected, *["rank_exit"] * 2, "job_end"]
    assert [event["size"] for event in events if event["event"] == "world"] == [3, 2]
    started = [event["pid"] for event in events if event["event"] == "rank_started"]
    assert started == [*before, *before[:2]]
    # Of both worlds, as the counters of the process.
    assert events[-1]["bytes"] >= sum(of(now, "bytes")) > 0
    lost = next(event for event in events if event["event"] == "rank_exit")
    assert (lost["rank"], lost["host"], lost["pid"], lost["code"]) == (2, "127.0.0.1", before[2], -9)
    reset = next(event for event in events if event["event"] == "reset")
    assert (reset["generation"], reset["size"]) == (2, 2) and "127.0.0.1[0]" in reset["reason"]


def test_the_events_file_tells_who_failed_and_what_took_how_long(tmp_path: Path) -> None:
    with contextlib.closing(
        StepsJob(tmp_path, "-np", "3", "--min-np", "2", "-H", "localhost:2,127.0.0.1:1")
    ) as job:
        before = job.under_way(3)
        os.kill(before[2]["pid"], signal.SIGKILL)
        job.world(2)
        job.end()
        first, second = job.events("generation")
        assert first["culprit"] is None and first["previous"] == [] and first["detect"] == 0
        assert [member["pid"] for member in first["members"]] == [note["pid"] for note in before]
        assert second["culprit"] == "127.0.0.1[0]" and "127.0.0.1[0]" in second["reason"]
        assert [(each["name"], each["rank"], each["code"]) for each in second["failures"]] == [
            ("127.0.0.1[0]", 2, -9)
        ]
        names = ("host", "slot", "rank", "pid")
        assert [tuple(each[name] for name in names) for each in second["members"]] == [
            ("localhost", 0, 0, before[0]["pid"]),
            ("localhost", 1, 1, before[1]["pid"]),
        ]
        assert [each["rank"] for each in second["previous"]] == [0, 1, 2]
        assert set(second["hosts"]) == {"localhost", "127.0.0.1"} and all(second["hosts"].values())
        assert second["sync"] is True and second["source"] in (0, 1) and second["commit"] > 0
        assert 0 <= second["detect"] < 10 and 0 <= second["decide"] < 10
        assert [event["generation"] for event in job.events("ready")] == [1, 2]
        for event in job.events("ready"):
            assert event["connect"] > 0
        for stage in ("connect", "sync"):
            timings = job.events("timing", generation=2, stage=stage)
            assert sorted(each["rank"] for each in timings) == [0, 1], stage
            assert all(each["seconds"] >= 0 for each in timings)
        # One line for the new world; of those that go on, nobody has to know where they were.
        assert job.output.count("horovodrun: generation 2: ") == 1
        assert "before the failure" not in job.output and job.output.count("before signal 9") == 1


def test_failures_are_in_the_log(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    hosts = ["-np", "2", "--min-np", "1", "-H", "localhost:1,127.0.0.1:1"]
    result = horovodrun(*hosts, sys.executable, "-c", "raise SystemExit(7)", env=env)
    assert result.returncode == 7
    (path,) = jobs.directory(env).iterdir()
    *_, failure, end = events_of(path / jobs.EVENTS)
    assert (failure["event"], failure["code"], end["event"], end["code"]) == ("failure", 7, "job_end", 7)
    assert failure["host"] in ("localhost", "127.0.0.1") and "7" in failure["reason"]
    result = horovodrun(*hosts, "--no-event-log", "true", env=env)
    assert result.returncode == 0 and len(list(jobs.directory(env).iterdir())) == 1


def test_ranks_that_have_become_others() -> None:
    """Who leaves may have had a rank that another process has now, or that none has had."""
    model = Model()
    for rank, pid in ((0, 10), (1, 11)):
        model.event({"event": "rank_started", "time": 1.0, "rank": rank, "host": "a", "pid": pid})
    model.event({"event": "stall", "time": 2.0, "missing": [{"rank": 1}]})
    model.event({"event": "reset", "time": 3.0, "generation": 2, "size": 1, "reason": "a change"})
    model.event({"event": "rank_started", "time": 3.0, "rank": 0, "host": "b", "pid": 11})
    for rank, pid in ((0, 10), (5, 12), (0, None)):
        exit = {"event": "rank_exit", "time": 4.0, "rank": rank, "host": "a", "code": 0, "what": "gone"}
        model.event({**exit, "pid": pid})
    snapshot = model.snapshot(5.0)
    (only,) = snapshot["ranks"]
    assert (only["rank"], only["host"], only["pid"], only["state"]) == (0, "b", 11, "running")
    assert snapshot["job"]["np"] == 1
