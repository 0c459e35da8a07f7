"""Trainings as they are written for tests of elastic launchers: hosts change and ranks fail by schedule."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from elastic_job import A, B
from runner_util import horovodrun
from util_paths import ROOT, SUPPORT

PROGRAM = Path(__file__).with_name("program_scheduled.py")
pytestmark = pytest.mark.timeout(300)
# Workers that start don't delay the notice, as the programs don't wait for long.
AT_ONCE = {"HOROVOD_ELASTIC_WARM_JOIN": "0"}
TWO_TO_FOUR = ["-np", "2", "--min-np", "2", "--max-np", "4"]
COMES_AND_GOES = [[f"{A}:2"], [f"{A}:2", f"{B}:2"], [f"{B}:2"]]
ONE_MORE = [[f"{A}:2"], [f"{A}:2", f"{B}:2"]]


class Outcome:
    """What is left of a job: `lines` are those of the log."""

    def __init__(self, directory: Path, framework: str, flags: list[str], **arguments: Any) -> None:
        log = directory / "log"
        log.touch()
        schedule = arguments.get("discovery_schedule")
        if schedule:
            script = directory / "discover.sh"
            cases = [f"{epoch}) printf '%s\\n' {' '.join(hosts)} ;;" for epoch, hosts in enumerate(schedule)]
            cases[-1] = "*" + cases[-1].lstrip("0123456789")
            script.write_text("\n".join(["#!/bin/sh", f"case $(wc -l < {log}) in", *cases, "esac\n"]))
            script.chmod(0o755)
            flags = [*flags, "--host-discovery-script", str(script)]
        words = [sys.executable, str(PROGRAM), "--framework", framework, "--logfile", str(log)]
        for name, value in arguments.items():
            text = value if isinstance(value, str) else json.dumps(value)
            words += [f"--{name.replace('_', '-')}", text]
        path = f"{ROOT}:{SUPPORT}"
        env = {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", **AT_ONCE}
        result = horovodrun(*flags, "--log-level", "info", *words, env=env, seconds=250)
        print(result.stdout, result.stderr)
        self.code = result.returncode
        self.stderr = result.stderr
        self.lines = [json.loads(line) for line in log.read_text().splitlines()]

    def worlds(self) -> list[tuple[int, int, str, int]]:
        return [
            (each["start_rank"], each["size"], each["hostname"], each["rendezvous"]) for each in self.lines
        ]


def test_hosts_come_and_go(tmp_path: Path, framework: str) -> None:
    found = Outcome(tmp_path, framework, TWO_TO_FOUR, discovery_schedule=COMES_AND_GOES)
    assert found.code == 0
    assert found.worlds() == [(0, 2, A, 1), (0, 4, A, 2), (2, 2, B, 3)]
    assert [each["commits"] for each in found.lines] == [10, 21, 32], "nothing is done twice"


@pytest.mark.parametrize(("fixed", "mode"), [(False, "exception"), (True, "kill")])
def test_one_rank_fails(tmp_path: Path, framework: str, fixed: bool, mode: str) -> None:
    hosts: dict[str, Any] = {} if fixed else {"discovery_schedule": [[f"{A}:2", f"{B}:2"]]}
    flags = ["-np", "4", "--min-np", "2", *(["-H", f"{A}:2,{B}:2"] if fixed else [])]
    found = Outcome(tmp_path, framework, flags, exit_schedule={"1,0": [0]}, exit_mode=mode, **hosts)
    assert found.code == 0
    assert found.worlds() == [(0, 4, A, 1), (2, 2, B, 2), (2, 2, B, 2)]
    assert f"blacklist failing host: {A}" in found.stderr


@pytest.mark.parametrize(
    ("ranks", "words"),
    [([0, 1, 2, 3], "Process name: "), ([0, 2], "every host of the job has failed")],
    ids=["everyone", "one of each host"],
)
def test_nobody_is_left(tmp_path: Path, framework: str, ranks: list[int], words: str) -> None:
    flags = ["-np", "4", "--min-np", "2"]
    schedule = [[f"{A}:2", f"{B}:2"]]
    found = Outcome(tmp_path, framework, flags, discovery_schedule=schedule, exit_schedule={"1,0": ranks})
    assert found.code == 1 and len(found.lines) == 1
    assert "Horovod detected that one or more processes exited with non-zero status" in found.stderr
    assert words in found.stderr


def test_too_few_slots_are_left(tmp_path: Path, framework: str) -> None:
    flags = ["-np", "4", "--min-np", "4", "--elastic-timeout", "2"]
    schedule = [[f"{A}:2", f"{B}:2"]]
    found = Outcome(tmp_path, framework, flags, discovery_schedule=schedule, exit_schedule={"1,0": [0]})
    assert found.code == 1 and len(found.lines) == 1
    timeout = found.stderr.index("Timed out waiting for minimum number of slots to become available")
    assert timeout < found.stderr.index(f"Process name: {A}[0]\nExit code: 1")


@pytest.mark.parametrize(
    ("limit", "schedule", "code", "sizes"),
    [(1, COMES_AND_GOES, 1, [2, 4]), (2, COMES_AND_GOES, 0, [2, 4, 2]), (0, ONE_MORE, 1, [2])],
)
def test_so_many_resets(
    tmp_path: Path, framework: str, limit: int, schedule: list[list[str]], code: int, sizes: list[int]
) -> None:
    flags = [*TWO_TO_FOUR, "--reset-limit", str(limit)]
    found = Outcome(tmp_path, framework, flags, discovery_schedule=schedule)
    assert (found.code, [each["size"] for each in found.lines]) == (code, sizes)
    message = f"number of resets during elastic job exceeded limit: {limit}"
    assert (message in found.stderr) == (code == 1)
