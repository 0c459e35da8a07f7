"""HOROVOD_AUTOTUNE: the log, the profile, the figures and what is said of it."""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from runner_util import horovodrun

from horovod import _core
from horovod.common import config, observer, profile
from horovod.common.tuning import COLUMNS, Tuning

VALUES = dict.fromkeys(_core.TUNABLES, 1)
HOSTS = ["a", "a", "b", "b"]
ORIGINAL = (
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score"
)


def sample(adopted: bool = False, **others: Any) -> dict[str, Any]:
    values = {**VALUES, "fusion_threshold": 4 << 20}
    report = {"state": "sample", "stage": "search", "values": values, "step_seconds": 0.02, "ratio": 0.8}
    return {**report, "pairs": 7, "won": 7, "adopted": adopted, "steps": 44, "score": 12.5, **others}


def finished(ratio: float) -> dict[str, Any]:
    changed = {"ahead": 4} if ratio < 1 else {}
    return {"state": "finished", "values": VALUES, "changed": changed, "ratio": ratio, "steps": 200}


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    monkeypatch.setattr(observer, "_listeners", [events.append])
    return events


def tuning(tmp_path: Path, **environ: str) -> Tuning:
    environ.setdefault("HOROVOD_AUTOTUNE_PROFILE", str(tmp_path / "cache" / "profile.json"))
    settings = config.read({"HOROVOD_AUTOTUNE_LOG": str(tmp_path / "log.csv"), **environ})
    return Tuning(settings, "hierarchical", HOSTS)


def rows(tmp_path: Path) -> list[dict[str, str]]:
    with (tmp_path / "log.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_log_begins_with_the_columns_of_the_original(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("of a job before\n")
    tuning(tmp_path).close()
    text = (tmp_path / "log.csv").read_text()
    assert text.startswith(ORIGINAL + ",") and len(text.splitlines()) == 1


def test_a_gain_is_written_down_kept_and_told(
    tmp_path: Path, heard: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    it = tuning(tmp_path)
    assert it.status["state"] == "searching"
    it.take(sample(stage="search"))
    it.take(sample(adopted=True, stage="confirm", score=15.0))
    assert it.status["tried"] == 2 and it.status["steps"] == 44
    it.take(finished(0.8))
    it.close()
    first, _, last = rows(tmp_path)
    assert set(first) == set(COLUMNS)
    assert (first["tensor_fusion_threshold"], first["cache_enabled"], first["step_ms"]) == ("4", "1", "20")
    assert (first["hierarchical_allreduce"], first["torus_allreduce"], first["ahead"]) == ("1", "0", "1")
    assert (last["stage"], float(last["score"]), last["adopted"]) == ("best", 15.0, "1")
    assert profile.read(tmp_path / "cache" / "profile.json") == VALUES
    assert it.status["state"] == "finished" and it.status["ratio"] == 0.8
    assert it.status["profile"] == str(tmp_path / "cache" / "profile.json")
    text = "steps take 20% less time since step 200, with ahead=4"
    assert capsys.readouterr().err == f"horovod: autotune: {text}\n"
    assert [(each["event"], each["state"], each["text"]) for each in heard] == [
        ("autotune", "finished", text)
    ]


def test_nothing_gained_is_told_and_nothing_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    it = tuning(tmp_path)
    it.take(sample(ratio=1.25))
    it.take(finished(1.0))
    assert rows(tmp_path)[-1]["stage"] == "best"
    assert float(rows(tmp_path)[-1]["step_ms"]) == 16.0  # what the candidate was compared with
    assert not (tmp_path / "cache").exists() and "profile" not in it.status
    assert "nothing is to be gained" in capsys.readouterr().err


def test_other_ends(tmp_path: Path, heard: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    it = tuning(tmp_path)
    it.take({"state": "given_up", "reason": "no names"})
    it.close()
    assert capsys.readouterr().err == "horovod: autotune: given up: no names\n"
    it = tuning(tmp_path)
    it.close()
    assert "not over when Horovod was shut down, after 0 steps" in capsys.readouterr().err
    assert it.status["state"] == "unfinished" and len(heard) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_costs_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    it = tuning(tmp_path, HOROVOD_AUTOTUNE_LOG="/dev/full")
    it.take(sample())
    it.take(finished(1.0))
    it.close()
    assert capsys.readouterr().err.count("/dev/full: [Errno 28] No space left on device") == 1


def test_a_log_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"HOROVOD_AUTOTUNE_LOG=.*No such file"):
        tuning(tmp_path, HOROVOD_AUTOTUNE_LOG=str(tmp_path / "missing" / "log.csv"))


def test_a_profile_that_can_not_be_kept_costs_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    tuning(tmp_path, HOROVOD_AUTOTUNE_PROFILE=str(tmp_path / "file" / "profile")).take(finished(0.9))
    assert "can't keep the profile" in capsys.readouterr().err


def test_where_profiles_are(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert profile.path("off", "tcp", HOSTS, home) is None
    assert profile.path("/a/b", "tcp", HOSTS, home) == Path("/a/b")
    found = profile.path("auto", "tcp", HOSTS, home)
    assert found is not None and found.parent == tmp_path / ".cache" / "horovod"
    assert found == profile.path("auto", "tcp", ["x", "y", "x", "y"], home)  # names don't matter
    others = [profile.path("auto", "shm", HOSTS, home), profile.path("auto", "tcp", ["a"] * 4, home)]
    assert len({found, *others}) == 3
    cache = {**home, "XDG_CACHE_HOME": str(tmp_path / "c")}
    assert profile.path("auto", "tcp", HOSTS, cache) == tmp_path / "c" / "horovod" / found.name


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"values": 3}', '{"values": {"ahead": "4"}}', '{"values": {"ahead": -1}}']
)
def test_useless_profiles_are_left_alone(text: str, tmp_path: Path) -> None:
    (tmp_path / "p").write_text(text)
    assert profile.read(tmp_path / "p") == {} and profile.read(tmp_path / "q") == {}


PROGRAM = """
import json, sys, time
import numpy as np
import horovod.numpy as hvd

hvd.init()
for step in range(440):
    handles = [hvd.allreduce_async(np.ones(2000, np.float32), name=f"g{i}") for i in range(3)]
    assert all(hvd.synchronize(each)[0] == 1 for each in handles)
    if hvd.rank() == 0 and step == 430:
        time.sleep(0.2)
found = hvd.metrics()
assert ("tuning" in found) == (hvd.rank() == 0)
if hvd.rank() == 0:
    print("tuning", json.dumps(found["tuning"]))
"""


def test_jobs_one_after_the_other(tmp_path: Path) -> None:
    """Whether something is gained is this machine's to say; the second one begins with the profile."""
    log, kept = tmp_path / "log.csv", tmp_path / "profile.json"
    for expected in ("search", "profile"):
        flags = ["-np", "2", "--autotune", "--autotune-log-file", str(log)]
        environ = {"HOROVOD_AUTOTUNE_PROFILE": str(kept)}
        events = tmp_path / f"{expected}.jsonl"
        done = horovodrun(*flags, "--event-log", str(events), sys.executable, "-c", PROGRAM, env=environ)
        assert done.returncode == 0, done.stderr
        told = [json.loads(each) for each in events.read_text().splitlines()]
        (end,) = [each for each in told if each["event"] == "autotune"]
        assert end["state"] == "finished" and f"horovod: autotune: {end['text']}\n" in done.stderr
        assert "horovod: autotune: " in done.stderr
        (line,) = [line for line in done.stdout.splitlines() if "tuning " in line]
        status = json.loads(line.partition("tuning ")[2])
        assert status["state"] == "finished" and status["steps"] <= 400
        written = rows(tmp_path)
        assert written[0]["stage"] == expected and written[-1]["stage"] == "best"
        profile.write(kept, {"ahead": 4}, 0.9, 100)
