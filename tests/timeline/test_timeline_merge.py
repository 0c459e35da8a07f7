"""The merged file: what viewers need, and that nothing in it would make them draw nonsense."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from synthetic import MS, US, Host, Job

from horovod.timeline.__main__ import main
from horovod.timeline.files import load, parts_beside, write_merged
from horovod.timeline.records import SUBMIT, WAIT_BEGIN, WAIT_END, PartError, write_part

HOSTS = [Host("a"), Host("a"), Host("b", 3_000 * MS, 80e-6)]


def job() -> Job:
    slow = Job(HOSTS, steps=25, tensors=6, fused=4, data=lambda rank, step: 5 * MS)
    slow.compute = lambda rank, step: 52 * MS if rank == 2 else 40 * MS
    slow.heartbeat = lambda number: 50 * US
    return slow


def write_parts(directory: Path, made: Job) -> list[Path]:
    (directory / "t.json").write_text("[]")
    paths = []
    for part in made.parts():
        paths.append(directory / f"t.json.rank{part.rank}.part")
        paths[-1].write_bytes(write_part(part))
    return paths


def merged(directory: Path, made: Job, *flags: str, name: str = "merged.json") -> dict[str, Any]:
    write_parts(directory, made)
    assert main(["merge", str(directory / "t.json"), "-o", str(directory / name), *flags]) == 0
    data = (directory / name).read_bytes()
    document: dict[str, Any] = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    return document


def check_nesting(events: list[dict[str, Any]]) -> None:
    """On one lane, slices are apart or one within the other."""
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append((event["ts"], -event["dur"]))
    assert lanes
    for slices in lanes.values():
        ends: list[float] = []
        for begin, negative in sorted(slices):
            end = begin - negative
            while ends and ends[-1] <= begin + 0.002:  # rounding
                ends.pop()
            assert not ends or end <= ends[-1] + 0.002
            ends.append(end)


def test_layout(tmp_path: Path) -> None:
    document = merged(tmp_path, job())
    events = document["traceEvents"]
    check_nesting(events)
    assert document["baseTimeNanoseconds"] >= 1_800_000_000 * 10**9
    named = [event for event in events if event["ph"] == "M" and event["name"] == "process_name"]
    assert [event["args"]["name"] for event in named] == [
        "rank 0 · a · pid 4000",
        "rank 1 · a · pid 4001",
        "rank 2 · b · pid 4002",
    ]
    lanes = {(event["tid"], event["pid"]) for event in events if "tid" in event}
    assert 0 not in {tid for tid, _ in lanes} and len({tid for tid, _ in lanes}) == len(lanes)
    times = [event["ts"] for event in events if "ts" in event]
    assert min(times) >= 0 and max(times) < 60_000_000
    assert all(set(event) & {"tid"} for event in events if event["ph"] in "Xsf")


def test_what_is_shown(tmp_path: Path) -> None:
    events = merged(tmp_path, job())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    names = {event["name"] for event in slices}
    assert {"step 25", "wait grad.0", "ALLREDUCE", "waiting for rank 2", "data"} <= names
    run = next(event for event in slices if event["name"] == "ALLREDUCE")
    about = run["args"]
    assert (about["tensor"], about["tensors"], about["bytes"]) == ("grad.0", 4, 4 << 20)
    assert about["algorithm"] == "pipelined" and about["shape"] == [2, 3] and about["dtype"] == "float16"
    late = [event for event in slices if event["name"] == "waiting for rank 2"]
    assert len({event["pid"] for event in late}) == 2 and len(late) >= 40
    assert late[5]["args"]["lag_ms"] == pytest.approx(12, abs=0.5)
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys() and len(starts) == len(late)
    assert all(abs(ends[key]["ts"] - start["ts"]) < 200 for key, start in starts.items())
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert counters == {"bytes in flight", "GB/s"}


def test_arrows_of_what_calls_back_begin_in_a_slice(tmp_path: Path) -> None:
    """Viewers draw no others. For TensorFlow's operations nobody waits."""
    made = job()
    parts = made.parts()
    for part in parts:
        part.records = [
            record._replace(operation=1) if record.kind == SUBMIT else record
            for record in part.records
            if record.kind not in (WAIT_BEGIN, WAIT_END)
        ]
    made.parts = lambda: parts  # type: ignore[method-assign]
    events = merged(tmp_path, made)["traceEvents"]
    check_nesting(events)
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["name"] for event in slices if event["tid"] % 10 == 1} == {
        "in flight grad.0",
        "in flight grad.4",
    }
    starts = [event for event in events if event["ph"] == "s"]
    assert len(starts) >= 40
    for start in starts:
        assert any(
            (each["pid"], each["tid"]) == (start["pid"], start["tid"])
            and each["ts"] <= start["ts"] <= each["ts"] + each["dur"]
            for each in slices
        )


def test_all_hosts_have_one_clock(tmp_path: Path) -> None:
    """Runs of one operation overlap on all ranks, though the clocks are 3 s apart."""
    events = merged(tmp_path, job())["traceEvents"]
    runs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["name"] == "ALLREDUCE":
            runs[event["args"]["operation"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(runs) == 50
    for spans in runs.values():
        assert len(spans) == 3
        assert max(begin for begin, _ in spans) <= min(end for _, end in spans)


def test_compressed_and_only_some_steps(tmp_path: Path) -> None:
    document = merged(tmp_path, job(), "--steps", "5:8", name="m.json.gz")
    steps = {event["name"] for event in document["traceEvents"] if event["name"].startswith("step ")}
    assert {"step 6", "step 7", "step 8"} <= steps <= {f"step {number}" for number in range(5, 10)}


def test_a_killed_rank(tmp_path: Path) -> None:
    """Its part ends in the middle; the others' say how the job went."""
    paths = write_parts(tmp_path, job())
    paths[1].write_bytes(paths[1].read_bytes()[:-5000])
    assert main(["merge", *map(str, paths), "-o", str(tmp_path / "m.json")]) == 0
    events = json.loads((tmp_path / "m.json").read_text())["traceEvents"]
    check_nesting(events)
    ends = [(event["name"], event["pid"], event["s"]) for event in events if event["ph"] == "i"]
    assert ends == [("the records end here", 2, "p")]
    paths[2].unlink()
    worlds = write_merged({path.name: path.read_bytes() for path in paths[:2]}, tmp_path / "m.json")
    assert worlds[0].missing == [2] and "no records of rank 2" in worlds[0].notes()[0]


def test_clocks_that_can_not_be_trusted_are_told(tmp_path: Path) -> None:
    parts = job().parts()
    parts[0].header["clock"] = parts[1].header["clock"] = "hpet"
    parts[1].header["time_ns"] += 10**12  # in a container with a time of its own
    contents = {f"t.json.rank{part.rank}.part": write_part(part) for part in parts}
    (world,) = write_merged(contents, tmp_path / "m.json")
    slow, apart = world.notes()[-2:]
    assert "The clock source of a is hpet" in slow and "--doctor" in slow
    assert "ranks 0, 1 of a" in apart and "time namespaces" in apart
    (world,) = write_merged(
        {f"t.json.rank{part.rank}.part": write_part(part) for part in job().parts()}, tmp_path / "m.json"
    )
    assert not any("clock source" in note or "namespaces" in note for note in world.notes())


@pytest.mark.parametrize("name", ["m.json", "m.json.gz"])
def test_explain_from_the_merged_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    merged(tmp_path, job(), name=name)
    for path in parts_beside(tmp_path / "t.json"):
        path.unlink()
    capsys.readouterr()
    assert main(["explain", str(tmp_path / name)]) == 0
    text = capsys.readouterr().out
    assert "Rank 2 (b) was last in 14 of 14 steps" in text and "waited for longest" in text
    assert main(["explain", "--json", str(tmp_path / name)]) == 0
    assert json.loads(capsys.readouterr().out)["advice"][0]["cause"] == "slow rank"
    assert main(["explain", str(tmp_path / name), "--against", str(tmp_path / name)]) == 0
    assert "as before" in capsys.readouterr().out


def test_a_window_of_a_merged_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its parts are within it, and the reasons of its generations."""

    def slices(path: Path, name: str) -> list[Any]:
        events = json.loads(path.read_text())["traceEvents"]
        return [event for event in events if event["ph"] == "X" and event["name"] == name]

    whole, part, again = (tmp_path / name for name in ("merged.json", "window.json", "again.json"))
    for marks in (True, False):
        made = job()
        made.marks = marks
        merged(tmp_path, made)
        for path in parts_beside(tmp_path / "t.json"):
            path.unlink()
        assert main(["merge", str(whole), "-o", str(part), "--steps", "5:8"]) == 0
        assert len(slices(whole, "ALLREDUCE")) == 2 * 3 * 25
        assert 2 * 3 * 3 <= len(slices(part, "ALLREDUCE")) <= 2 * 3 * 4
        assert main(["merge", str(part), "-o", str(again)]) == 0
        assert len(slices(again, "ALLREDUCE")) == 2 * 3 * 25
    made.names = lambda step, tensor: f"noname.{6 * step + tensor}"
    merged(tmp_path, made)
    assert main(["merge", str(whole), "-o", str(tmp_path / "x"), "--steps", "5:8"]) == 1
    assert "no step was found" in capsys.readouterr().err


def test_files_of_rank_0_alone_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "old.json"
    old.write_text('[{"name": "process_name", "ph": "M", "pid": 1}]')
    with pytest.raises(PartError, match="rank 0 alone"):
        load([old])
    assert main(["explain", str(old)]) == 1
    assert "horovodrun --timeline FILE" in capsys.readouterr().err
    assert main(["merge", str(old), "-o", str(tmp_path / "x")]) == 1
    assert main(["explain", str(tmp_path / "missing")]) == 1
    with pytest.raises(SystemExit):
        main(["merge", str(old), "-o", "x", "--steps", "9:3"])
