"""Real jobs with horovodrun --timeline: one file of all ranks, and what made them slow is named."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_hosts import Hosts
from cluster_job import ClusterJob
from runner_util import Launcher, horovodrun, wait_until
from test_timeline_merge import check_nesting

from horovod.runner.agent.timeline_parts import packed
from horovod.runner.cli import timeline as collecting
from horovod.timeline.__main__ import main
from horovod.timeline.files import contents_of

TRAIN = Path(__file__).with_name("train.py")


def run(directory: Path, *arguments: str, np: int = 2, program: Path = TRAIN) -> tuple[str, dict[str, Any]]:
    """What horovodrun said, and the explanation as data."""
    flags = ["-np", str(np), "--timeline", "t.json", "--no-event-log"]
    result = horovodrun(*flags, sys.executable, str(program), *arguments, cwd=directory, seconds=150)
    assert result.returncode == 0, result.stderr
    return result.stderr, json.loads((directory / "t.json").read_text())


def explained(directory: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["explain", "--json", str(directory / "t.json")]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def test_all_ranks_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said, document = run(tmp_path, "--steps", "24")
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]  # no parts are left
    events = document["traceEvents"]
    check_nesting(events)
    runs = [event for event in events if event["ph"] == "X" and event["name"] == "ALLREDUCE"]
    assert {event["pid"] for event in runs} == {1, 2}
    assert any(event["name"].startswith("wait allreduce.grad.") for event in events)
    lines = [line for line in said.splitlines() if line.startswith("horovodrun: ")]
    assert "timeline of 2 ranks" in lines[0] and "steps of" in lines[1] and len(lines) <= 7
    data = explained(tmp_path, capsys)
    assert data["size"] == 2 and data["steps"] == 13
    assert data["speed"]["copy"] > 1e7
    sums = [sum(rank["parts"].values()) for rank in data["ranks"]]
    assert sum(sums) / 2 == pytest.approx(data["step"], rel=0.01)
    # On a busy machine the last step ends at quite different moments.
    assert max(sums) < 1.5 * min(sums)


def test_a_rank_that_sleeps_is_the_first_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "--steps", "30", "--late-rank", "1", "--late", "0.06")
    data = explained(tmp_path, capsys)
    assert data["advice"][0]["cause"] == "slow rank"
    assert data["last"]["1"] >= 0.8 * data["steps"]
    assert data["waited_for"]["1"] > 0.04


@pytest.mark.parametrize("how", ["tensorflow", "keras", "jax"])
def test_a_rank_that_sleeps_between_compiled_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """Nobody waits for TensorFlow's operations, which call back; the program looks at its metrics."""
    said, _ = run(tmp_path, how, "late", program=TRAIN.with_name("train_compiled.py"))
    data = explained(tmp_path, capsys)
    assert data["advice"][0]["cause"] == "slow rank", (said, data)
    assert data["last"]["1"] >= 0.8 * data["steps"]
    assert 0.05 < data["waited_for"]["1"] < 0.08
    first, second = data["ranks"]
    assert first["parts"]["late"] > 0.05 and second["parts"]["late"] < 0.01


def test_tiny_tensors_are_the_first_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--tensors",
        "1000",
        "--numbers",
        "16",
        "--steps",
        "14",
        "--one-by-one",
        "--compute",
        "0.001",
    ]
    run(tmp_path, *arguments)
    data = explained(tmp_path, capsys)
    assert data["advice"][0]["cause"] == "small operations"
    assert data["operations"] == pytest.approx(1000, rel=0.05)


@pytest.mark.parametrize(("flags", "cause"), [(["--marked"], "input"), ([], "idle")])
def test_a_slow_loader_is_the_first_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], cause: str
) -> None:
    run(tmp_path, "--steps", "20", "--load", "0.1", *flags)
    advice = explained(tmp_path, capsys)["advice"][0]
    assert advice["cause"] == cause and "data" in advice["sentence"]


@pytest.mark.parametrize("how", ["torch", "torch without a thread", "keras"])
def test_a_loader_of_horovod_tells_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    run(tmp_path, how, program=TRAIN.with_name("train_loader.py"))
    data = explained(tmp_path, capsys)
    assert data["advice"][0]["cause"] == "input" and data["found_by"] == "step marks"


def test_a_slow_network_is_the_first_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hosts: Hosts
) -> None:
    hosts.limit("10mbit")
    try:
        words = ["-np", "2", "-H", "host1,host2", "--timeline", tmp_path / "t.json", "--no-event-log"]
        job = ClusterJob(hosts, *words, sys.executable, TRAIN, "--steps", "16", "--numbers", "12500")
        assert job.finish().returncode == 0
    finally:
        hosts.unlimit()
    advice = explained(tmp_path, capsys)["advice"][0]
    assert advice["cause"] == "network" and "0.2 MB a step" in advice["sentence"]


def test_meanwhile_the_file_is_that_of_the_original(tmp_path: Path) -> None:
    words = [sys.executable, str(TRAIN), "--steps", "100000", "--mark-steps"]
    job = Launcher("-np", "2", "--timeline", "t.json", "--no-event-log", *words, cwd=tmp_path)
    found = ""

    def complete() -> bool:
        nonlocal found
        found = (tmp_path / "t.json").read_text() if (tmp_path / "t.json").exists() else ""
        return "allreduce.grad.3" in found and '"GLOO_ALLREDUCE"' in found

    wait_until(complete, 60, "rank 0 wrote nothing")
    events = json.loads(found)
    assert events[0]["args"]["start_time_since_epoch_in_micros"] > 0
    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"} <= {event.get("name") for event in events}
    with (tmp_path / "t.json").open() as opened:
        job.process.terminate()
        ended = job.finish(60)
        assert ended.returncode == 143 and "timeline of 2 ranks" in ended.stderr
        assert opened.read(1) == "["  # whoever has it open keeps it
    assert "traceEvents" in json.loads((tmp_path / "t.json").read_text())


def test_without_a_launcher_it_says_how_to_join_the_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def alone(*words: str) -> list[str]:
        """What a job of one process says."""
        variables = {"HOROVOD_TIMELINE": str(tmp_path / "t.json"), "HOROVOD_TIMELINE_RANKS": "all"}
        result = subprocess.run(
            [sys.executable, str(TRAIN), "--steps", "24", *words],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        return [line for line in result.stderr.splitlines() if "part of the timeline" in line]

    (line,) = alone()
    command = shlex.split(line.partition("to join them: ")[2])
    assert command[:4] == ["python", "-m", "horovod.timeline", "merge"]
    assert main(command[3:]) == 0
    assert main(["explain", "--json", command[-1]]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["size"] == 1
    said, _ = run(tmp_path, "--steps", "12")
    assert "part of the timeline" not in said


def test_another_timeline_within_a_job_is_not_collected(tmp_path: Path) -> None:
    """The program goes over to a file of its own, whose parts stay where they are."""
    program = tmp_path / "other.py"
    program.write_text(
        "import horovod.numpy as hvd\nhvd.init()\nhvd.barrier()\n"
        "hvd.start_timeline('own.json')\nhvd.barrier()\nhvd.stop_timeline()\n"
    )
    said, _ = run(tmp_path, program=program)
    (line,) = [line for line in said.splitlines() if "part of the timeline" in line]
    assert "[0]<stderr>" in line and "own.json -o own.all.json" in line


def test_a_job_that_records_nothing(tmp_path: Path) -> None:
    (tmp_path / "t.json.rank7.part").write_bytes(b"of an earlier job")
    result = horovodrun("-np", "1", "--timeline", "t.json", "true", cwd=tmp_path)
    assert result.returncode == 0 and "did the program call hvd.init()?" in result.stderr
    assert not list(tmp_path.iterdir())  # neither an empty file


def test_a_killed_rank_leaves_its_records(tmp_path: Path) -> None:
    program = tmp_path / "dies.py"
    program.write_text(
        "import os, signal, time\nimport numpy as np\nimport horovod.numpy as hvd\nhvd.init()\n"
        "for step in range(60):\n"
        "    hvd.allreduce(np.ones(10), name='x')\n"
        "    time.sleep(0.01)\n"
        "    if step == 50 and hvd.rank() == 1:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    result = horovodrun("-np", "2", "--timeline", "t.json", sys.executable, str(program), cwd=tmp_path)
    assert result.returncode == 137
    assert "timeline of 2 ranks" in result.stderr, result.stderr
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    check_nesting(events)
    killed = [event for event in events if event["ph"] == "X" and event["pid"] == 2]
    assert len([event for event in killed if event["name"] == "ALLREDUCE"]) > 20


def test_a_full_disk_costs_messages(tmp_path: Path) -> None:
    """The engine's warning, and that of the merge; the job goes on to its end."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    flags = ["-np", "2", "--timeline", "t.json", "--no-event-log"]
    # Names that differ: those that recur are folded, and need little room.
    words = [sys.executable, str(TRAIN), "--steps", "60", "--tensors", "40", "--numbers", "10"]
    job = Launcher(*flags, *words, cwd=tmp_path, preexec=limited)
    ended = job.finish(150)
    assert ended.returncode == 0, ended.stderr
    assert "The rest is left out; the job goes on." in ended.stderr, ended.stderr
    assert "the timeline could not be merged: [Errno 27] File too large" in ended.stderr
    assert f"its parts are beside {tmp_path / 't.json'}" in ended.stderr
    json.loads((tmp_path / "t.json").read_text())
    assert main(["explain", str(tmp_path / "t.json")]) in (0, 1)  # whatever is there


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), OSError("no room")])
def test_a_merge_that_does_not_end_keeps_all_parts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    problem: BaseException,
) -> None:
    """Also those that other hosts have sent, which are nowhere else."""

    def fail(*_: object, **__: object) -> None:
        raise problem

    timeline = tmp_path / "t.json"
    run(tmp_path, "--steps", "12")
    contents, _ = contents_of([timeline])
    here, there = sorted(contents)
    (tmp_path / here).write_bytes(contents[here])
    monkeypatch.setattr(collecting, "write_merged", fail)
    collecting.finish(timeline, [packed({there: contents[there]})])
    said = capsys.readouterr().err
    assert ("interrupted" in said) == isinstance(problem, KeyboardInterrupt)
    command = shlex.split(said.partition("to join them: ")[2])
    assert (tmp_path / there).read_bytes() == contents[there]
    assert main(command[3:]) == 0
    assert sorted(contents_of([Path(command[-1])])[0]) == [here, there]


def test_the_command_that_is_told_can_be_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "of a run"
    directory.mkdir()
    said, _ = run(directory, "--steps", "24")
    assert main(shlex.split(said.partition("more: ")[2])[3:]) == 0
    assert "steps of" in capsys.readouterr().out


@pytest.mark.parametrize("left", [0, 3, 8])
def test_a_part_that_was_hardly_begun_does_not_cost_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left: int
) -> None:
    run(tmp_path, "--steps", "24")
    contents, _ = contents_of([tmp_path / "t.json"])
    last = max(contents)
    collecting.finish(tmp_path / "new.json", [packed({**contents, last: contents[last][:left]})])
    said = capsys.readouterr().err
    assert "timeline of 1 rank:" in said and "There are no records of rank 1." in said and "steps of" in said


def test_large_records_are_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timeline = tmp_path / "t.json"
    run(tmp_path, "--steps", "12")
    contents, _ = contents_of([timeline])
    monkeypatch.setattr(collecting, "_LARGE", 1000)
    collecting.finish(timeline, [packed(contents)])
    assert "of records; Ctrl-C leaves them" in capsys.readouterr().err
    # The kernel would end the launcher, and what other hosts have sent would be lost.
    monkeypatch.setattr(collecting, "_available", lambda: 10_000)
    timeline.unlink()
    collecting.finish(timeline, [packed(contents)])
    said = capsys.readouterr().err
    assert "GB of memory, and 0.0 are available: join them elsewhere" in said and "to join them:" in said
    assert not timeline.exists() and all((tmp_path / name).exists() for name in contents)


def test_two_flags_for_one_file(tmp_path: Path) -> None:
    flags = ["--timeline", "a", "--timeline-filename", "b"]
    result = horovodrun("-np", "1", *flags, "true", cwd=tmp_path)
    assert result.returncode == 2 and "give one of them" in result.stderr


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    result = horovodrun("-np", "1", "--timeline", "no/such/t.json", "true", cwd=tmp_path)
    assert result.returncode == 1
    assert re.search(r"--timeline \S+no/such/t.json: No such file or directory: give", result.stderr), (
        result.stderr
    )
