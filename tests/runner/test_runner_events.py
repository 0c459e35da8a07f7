"""The event log: what is in it, in which order, who may read it, and what is never in it."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from runner_util import Launcher, horovodrun

from horovod.runner import jobs
from horovod.runner.cli.job_list import job_list
from horovod.runner.launcher.event_log import NAMES, EventLog, read, settings_without_secrets, without_secrets


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def events_of(file: Path) -> list[dict[str, Any]]:
    with file.open("rb") as lines:
        found = read(lines)
    assert len(found) == len(file.read_bytes().splitlines())  # nothing torn
    return found


def only_job(state: Path) -> Path:
    (job,) = (state / "horovod/jobs").iterdir()
    return job


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]


def test_a_job_from_start_to_end(state: Path, tmp_path: Path) -> None:
    script = 'echo "key $_HOROVOD_SECRET_KEY"'
    files = ["--event-log", str(tmp_path / "mine.jsonl"), "--output-filename", str(tmp_path / "out")]
    command = ["sh", "-c", script, "--password", "hunter2", "--api-token=abc"]
    result = horovodrun("-np", "2", *files, *command, env={"XDG_STATE_HOME": str(state)})
    assert result.returncode == 0, result.stderr
    key = result.stdout.split()[-1]
    job = only_job(state)
    text = (job / "events.jsonl").read_text()
    assert key not in text and "hunter2" not in text and "abc" not in text
    assert key not in (job / "job.json").read_text()
    assert (tmp_path / "mine.jsonl").read_text() == text == (tmp_path / "out/events.jsonl").read_text()
    assert stat.S_IMODE(job.stat().st_mode) == 0o700
    for file in (job / "events.jsonl", job / "job.json", tmp_path / "mine.jsonl"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    events = events_of(job / "events.jsonl")
    assert names(events)[0] == "job_start" and names(events)[-1] == "job_end"
    assert sorted(names(events)[1:-1]) == ["rank_exit"] * 2 + ["rank_started"] * 2
    start, end = events[0], events[-1]
    assert (start["schema"], start["np"], start["hosts"]) == (1, 2, {"localhost": [0, 1]})
    assert start["id"] == job.name and start["command"][-1] == "--api-token=<secret>"
    assert end["code"] == 0 and 0 < end["seconds"] < 60
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    (entry,) = jobs.listed(state / "horovod/jobs")
    assert not entry.running and entry.about["code"] == 0


def test_failure_names_the_first_cause(state: Path) -> None:
    script = "if [ $HOROVOD_RANK = 1 ]; then kill -9 $$; fi; exec sleep 60"
    flags = ["--grace-period", "0.1", "-np", "2"]
    result = horovodrun(*flags, "sh", "-c", script, env={"XDG_STATE_HOME": str(state)})
    assert result.returncode == 137
    events = events_of(only_job(state) / "events.jsonl")
    ends = [event for event in events if event["event"] == "rank_exit"]
    assert [(event["rank"], event["code"]) for event in ends] == [(1, -9), (0, -15)]
    assert names(events)[-2:] == ["failure", "job_end"]
    assert events[-2]["rank"] == 1 and "signal 9" in events[-2]["reason"]
    assert events[-1]["code"] == 137


def test_a_signal_and_a_running_job(state: Path) -> None:
    launcher = Launcher("-np", "1", "sh", "-c", "echo up; exec sleep 60", env={"XDG_STATE_HOME": str(state)})
    launcher.wait_for(1, "up")
    entry = jobs.find(state / "horovod/jobs", None)
    assert entry.running and entry.pid == launcher.process.pid and entry.about["np"] == 1
    launcher.process.send_signal(signal.SIGTERM)
    assert launcher.finish().returncode == 143
    events = events_of(entry.path / "events.jsonl")
    assert names(events) == ["job_start", "rank_started", "signal", "rank_exit", "job_end"]
    assert events[2]["signal"] == "SIGTERM"
    with pytest.raises(ValueError, match="no job of horovodrun runs"):
        jobs.find(state / "horovod/jobs", None)


def test_a_killed_launcher_leaves_whole_lines_and_no_running_job(state: Path) -> None:
    launcher = Launcher("-np", "1", "sh", "-c", "echo up; exec sleep 60", env={"XDG_STATE_HOME": str(state)})
    launcher.wait_for(1, "up")
    launcher.process.kill()
    launcher.process.communicate()
    (entry,) = jobs.listed(state / "horovod/jobs")
    assert not entry.running
    assert names(events_of(entry.path / "events.jsonl")) == ["job_start", "rank_started"]


def test_no_event_log(state: Path, tmp_path: Path) -> None:
    flags = ["--no-event-log", "--output-filename", str(tmp_path / "out")]
    assert horovodrun("-np", "1", *flags, "true", env={"XDG_STATE_HOME": str(state)}).returncode == 0
    assert not state.exists() and not (tmp_path / "out/events.jsonl").exists()


def test_a_file_that_cannot_be_written(state: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    env = {"XDG_STATE_HOME": str(state)}
    result = horovodrun("-np", "1", "--event-log", str(tmp_path / "file/x"), "true", env=env)
    assert result.returncode == 1 and "file" in result.stderr and "Traceback" not in result.stderr
    # Nobody asked for the state directory: the job runs without it.
    (tmp_path / "blocked").touch()
    for flags, told in ((["--verbose"], True), (["--dashboard"], True), ([], False)):
        env = {"XDG_STATE_HOME": str(tmp_path / "blocked")}
        result = horovodrun("-np", "1", *flags, "true", env=env)
        assert result.returncode == 0 and ("no event log is kept" in result.stderr) == told, result.stderr


def test_a_full_disk_costs_a_warning() -> None:
    log = EventLog()
    warnings: list[str] = []
    heard: list[str] = []
    log.warn = warnings.append
    log.tell(lambda event: heard.append(event["event"]))
    log.write_to(Path("/dev/full"))
    log.add("signal", signal="SIGTERM")
    log.add("job_end", code=0)
    assert warnings == ["the event log /dev/full ends here: No space left on device"]
    assert heard == ["signal", "job_end"]


ELASTIC = ["--min-np", "1", "--failures-before-blacklist", "9"]


@pytest.mark.parametrize("more", [[], ELASTIC], ids=["plain", "elastic"])
def test_a_disk_that_is_full_from_the_start_costs_a_warning(state: Path, more: list[str]) -> None:
    flags = ["-np", "1", *more, "--event-log", "/dev/full"]
    result = horovodrun(*flags, "true", env={"XDG_STATE_HOME": str(state)})
    assert result.returncode == 0, result.stderr
    said = "the event log /dev/full ends here: No space left on device"
    assert result.stderr.count(said) == 1, result.stderr
    assert names(events_of(only_job(state) / "events.jsonl"))[-1] == "job_end"  # the other file goes on


def test_a_pipe_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    log = EventLog()
    with pytest.raises(OSError, match="No such device"):
        log.write_to(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    warnings: list[str] = []
    log.warn = warnings.append
    log.write_to(tmp_path / "pipe")
    while not warnings:
        log.add("signal", signal="x" * 1000)
    os.close(reader)
    assert "ends here" in warnings[0]


def test_the_last_twenty_are_kept_and_those_that_run(tmp_path: Path) -> None:
    running = jobs.create(tmp_path, 0.0, 1)
    jobs.write_about(running, {"pid": os.getpid(), "ticks": jobs.started_at(os.getpid())})
    made = [jobs.create(tmp_path, 1000.0 + second, 1) for second in range(30)]
    left = [entry.path for entry in jobs.listed(tmp_path)]
    assert left == [running, *made[-jobs.KEPT :]]


def test_jobs_of_another_node_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes may share the home directory; who is dead there can't be seen from here."""
    jobs_directory = tmp_path / "horovod/jobs"
    other = jobs.create(jobs_directory, 0.0, 1)
    about = {"pid": os.getpid(), "ticks": jobs.started_at(os.getpid()), "node": "node7", "np": 1}
    jobs.write_about(other, about)
    over = jobs.create(jobs_directory, 1.0, 1)
    jobs.write_about(over, {**about, "code": 0})
    made = [jobs.create(jobs_directory, 1000.0 + second, 1) for second in range(jobs.KEPT)]
    entries = jobs.listed(jobs_directory)
    assert [entry.path for entry in entries] == [other, *made]
    assert entries[0].elsewhere and not entries[0].running
    env = {"XDG_STATE_HOME": str(tmp_path)}
    assert f"{other.name}  1970-01-01" in job_list(env) and "elsewhere (node7)" in job_list(env)
    result = horovodrun("--stack-dump", other.name, env=env)
    assert result.returncode == 1 and "was started on node7: ask there" in result.stderr
    monkeypatch.setattr(jobs, "node", lambda: "node7")
    assert jobs.listed(jobs_directory)[0].running


def test_find_by_a_part_of_the_id(tmp_path: Path) -> None:
    now = time.time()
    first, second = jobs.create(tmp_path, now, 17), jobs.create(tmp_path, now, 18)
    assert jobs.find(tmp_path, "-17").path == first
    assert jobs.find(tmp_path, second.name).path == second
    longer = jobs.create(tmp_path, now, 170)
    assert jobs.find(tmp_path, first.name).path == first and jobs.find(tmp_path, "-170").path == longer
    for word in ("2", "nothing"):
        with pytest.raises(ValueError, match="--jobs"):
            jobs.find(tmp_path, word)


def test_where_the_state_directory_is() -> None:
    assert jobs.directory({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == Path("/s/horovod/jobs")
    assert jobs.directory({"XDG_STATE_HOME": "s", "HOME": "/h"}) == Path("/h/.local/state/horovod/jobs")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="no_such_event"):
        EventLog().add("no_such_event")
    assert len(set(NAMES)) == len(NAMES)


def test_half_a_line_is_not_an_event() -> None:
    line = json.dumps({"time": 1.0, "event": "signal"}).encode()
    assert read([line + b"\n", b"{}\n", b"[1]\n", line]) == [{"time": 1.0, "event": "signal"}]


def test_words_that_may_be_secret() -> None:
    words = ["x", "--password", "p", "--lr", "1", "API_TOKEN=t", "--tokenizer", "bert", "--secret", "-v"]
    expected = ["x", "--password", "<secret>", "--lr", "1", "API_TOKEN=<secret>", *words[6:]]
    assert without_secrets(words) == expected
    for name in ("aws-secret-access-key", "account_key", "authKey", "signing-keys", "encryption-key"):
        assert without_secrets([f"--{name}=x", f"--{name}", "x"])[0] == f"--{name}=<secret>"
        assert settings_without_secrets({name: "x"}) == {name: "<secret>"}
    assert without_secrets(["--sort-key=x", "--monkey", "x"]) == ["--sort-key=x", "--monkey", "x"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("env API_TOKEN=t python x.py", "env API_TOKEN=<secret> python x.py"),
        ("python x.py --password 'p q' --lr 1", "python x.py --password <secret> --lr 1"),
        ("python x.py --password=p --secret --lr 1", "python x.py --password=<secret> --secret --lr 1"),
        ("curl -H 'Authorization: Bearer abc' x", "curl -H 'Authorization: Bearer <secret>' x"),
        ("--db=postgres://me:pw@host/db", "--db=postgres://me:<secret>@host/db"),
        ("token holders --tokenizer bert a:b@c http://host:80/@x", None),
    ],
)
def test_secrets_within_a_word(word: str, expected: str | None) -> None:
    assert without_secrets(["sh", "-c", word]) == ["sh", "-c", expected or word]
    assert settings_without_secrets({"mpi-args": word}) == {"mpi-args": expected or word}
