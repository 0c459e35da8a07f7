"""`python -m horovod.bench`: its parts without processes, then real runs with tiny sizes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from util_launch import launch
from util_paths import ROOT

from horovod.bench import resnet50, tune
from horovod.bench.measure import Summary
from horovod.bench.options import BENCHMARKS, parse, without_np
from horovod.bench.results import Row
from horovod.bench.sizes import parse_size, show_size, show_time


def test_resnet50_has_its_parameters() -> None:
    shapes = resnet50.parameters()
    assert len(shapes) == 161 and resnet50.count(shapes) == 25_557_032
    assert len({name for name, _ in shapes}) == 161
    assert shapes[0] == ("conv1.weight", (64, 3, 7, 7)) and shapes[-1] == ("fc.bias", (1000,))
    assert resnet50.gradients()[0] == shapes[-1]


@pytest.mark.parametrize(
    ("text", "size"), [("4", 4), ("64K", 1 << 16), ("1.5MiB", 3 << 19), ("1g", 1 << 30), ("7 B", 7)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-4", "4X", "K", "0.5"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_figures_are_shown_short() -> None:
    assert [show_size(size) for size in (4, 65536, 3 << 19)] == ["4 B", "64 KiB", "1.5 MiB"]
    assert [show_time(seconds) for seconds in (4.2e-6, 0.0123, 1.5)] == ["4.20 µs", "12.3 ms", "1.50 s"]


def test_what_tuning_leaves_is_told() -> None:
    assert tune.verdict({"state": "finished", "profile": "/p"}).endswith(": /p")
    assert "defaults are as good" in tune.verdict({"state": "finished"})
    assert "not ended" in tune.verdict({"state": "searching"})


def test_tuning_goes_on_until_the_search_is_over(tmp_path: Path) -> None:
    """Whether something is gained is this machine's to say; the file is there if and only if it was."""
    kept = tmp_path / "profile.json"
    command = [sys.executable, "-m", "horovod.bench", "--np", "2", "--tune"]
    environ = {
        **os.environ,
        "HOROVOD_AUTOTUNE_PROFILE": str(kept),
        "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "2",
    }
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ)
    assert done.returncode == 0, done.stderr
    assert ("Kept for the next job with --autotune: " + str(kept) in done.stdout) == kept.exists()
    assert kept.exists() or "Nothing is kept: the defaults are as good" in done.stdout
    assert "horovod: autotune: " in done.stderr and "not over" not in done.stderr


def test_bandwidths() -> None:
    summary = Summary.of(np.array([1.0, 2.0, 3.0]))
    assert (summary.count, summary.min, summary.p50, summary.mean) == (3, 1.0, 2.0, 2.0)
    row = Row("allreduce", "allreduce", 4, "float32", 800, 1, summary, Summary(3, 1.0, 1.0, 1.0, 1.0))
    assert row.algorithm_bandwidth == 400 and row.bus_bandwidth == 600 and row.memcpy_ratio == 2.0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--np", "0"], "above 0"),
        (["--only", "allreduce,nothing"], "there are latency"),
        (["--sizes", "1X"], "is not a size"),
        (["--dtype", "str"], "there are float16"),
        (["--seconds", "0"], "number of seconds"),
        (["--json", "/no/such/directory/file"], "existing directory"),
        (["--iterations", "3", "--seconds", "1"], "not allowed with"),
    ],
)
def test_bad_arguments(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(arguments)
    assert stopped.value.code == 2 and complaint in capsys.readouterr().err


def test_np_is_not_passed_on() -> None:
    assert without_np(["--np", "3", "--only", "grads", "--np=4"]) == ["--only", "grads"]


def test_peers_are_compared_with_targets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    page = importlib.import_module("page")
    plan = importlib.import_module("plan")
    assert all(
        any(
            (launch.np, launch.transport) == (target.np, target.transport) and target.case in launch.cases
            for launch in plan.LAUNCHES
        )
        for target in plan.TARGETS
    )
    case = plan.Case(plan.ALLREDUCE, size=64 << 20)
    medians = {case.key: {"ours": 0.010, "gloo": 0.051, "mpi": 0.029, "memcpy": 0.008}}
    lines = plan.compare(plan.Launch(2, "shm", True, (case,)), medians, {case.key: 15})
    assert [(line.peer, line.reached) for line in lines] == [("gloo", True), ("mpi", False), ("memcpy", True)]
    assert page.score(lines) == "2 of 3 targets reached."

    file = tmp_path / "page.md"
    file.write_text("nothing")
    with pytest.raises(ValueError, match="has no line"):
        page.update(file, "text")
    file.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    page.update(file, page.markdown(lines))
    text = file.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "| 64 MiB" not in text and "allreduce 64 MiB | 15 | 10.0 ms | gloo | 51.0 ms | 5.10 |" in text


def test_buckets_close_when_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    peers = importlib.import_module("peers")
    groups = peers.in_buckets([np.zeros(n, np.uint8) for n in (3, 3, 1, 9, 2)], 6)
    assert [[array.size for array in group] for group in groups] == [[3, 3], [1, 9], [2]]


def check_figures(file: Path, ranks: int, benchmarks: set[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text())
    assert document["np"] == ranks and document["machine"]["cpu"]
    assert {row["benchmark"] for row in document["rows"]} == benchmarks
    for row in document["rows"]:
        assert 0 < row["time"]["min"] <= row["time"]["p50"] <= row["time"]["p99"]
        assert (row["memcpy_ratio"] is None) == (row["benchmark"] == "latency")
    return document


def test_alone_it_starts_its_processes(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "horovod.bench", "--np", "3", "--sizes", "4,1K", "--iterations", "3"]
    done = subprocess.run(
        [*command, "--only", "latency,allreduce,allgather,broadcast", "--json", file],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    check_figures(file, 3, {"latency", "allreduce", "allgather", "broadcast"})
    assert "p99" in done.stdout and "barrier" in done.stdout and "│" in done.stdout
    assert "<stdout>" not in done.stdout  # as if it were not several processes


def test_under_horovodrun(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    outcome = launch(
        2, "-m", "horovod.bench", "--sizes", "1K", "--iterations", "2", "--dtype", "float16", "--json", file
    )
    assert outcome.code == 0, outcome.output
    document = check_figures(file, 2, set(BENCHMARKS))
    grads = document["rows"][-1]
    assert grads["tensors"] == 161 and grads["size"] == 2 * 25_557_032 and grads["dtype"] == "float16"
    assert "[1]<stdout>" not in outcome.output


def test_another_number_of_processes_is_refused() -> None:
    outcome = launch(2, "-m", "horovod.bench", "--np", "3")
    assert outcome.code != 0 and "leave --np out" in outcome.output
