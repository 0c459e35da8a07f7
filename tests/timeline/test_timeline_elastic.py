"""horovodrun --timeline with an elastic job: all its worlds in one file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from runner_util import horovodrun
from synthetic import MS, Host, Job
from test_timeline_merge import check_nesting

from horovod.runner.agent.timeline_parts import packed, unpacked
from horovod.timeline.__main__ import main
from horovod.timeline.files import load
from horovod.timeline.records import worlds, write_part

PROGRAM = """
import os, signal, time
import numpy as np
import horovod.numpy as hvd
from horovod.common.elastic import ObjectState, run

hvd.init()
state = ObjectState(lambda value, **_: hvd.broadcast_object(value), hvd.rank, step=0)

@run
def train(state):
    while state.step < 40:
        hvd.allreduce(np.ones(100, np.float32), name="gradient")
        time.sleep(0.005)
        state.step += 1
        if state.step == 15 and hvd.size() == 3 and hvd.rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        state.commit()

train(state)
hvd.shutdown()
"""


def test_all_worlds_in_one_file(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    flags = ["-np", "3", "--min-np", "2", "-H", "localhost:1,127.0.0.1:2", "--timeline", "t.json"]
    result = horovodrun(*flags, sys.executable, str(program), cwd=tmp_path, seconds=120)
    assert result.returncode == 0, result.stderr
    assert "2 worlds" in result.stderr, result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "train.py"]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    check_nesting(events)
    resets = [event for event in events if event["ph"] == "i" and event["s"] == "g"]
    assert [event["name"] for event in resets] == ["world 2: 2 ranks"]
    assert "localhost[0]" in resets[0]["args"]["reason"] and "signal 9" in resets[0]["args"]["reason"]
    # The survivors of the first world tell why it has ended; the killed one tells nothing any more.
    failures = [event for event in events if event["ph"] == "i" and event["s"] == "p"]
    told = [event for event in failures if event["name"] == "failure"]
    assert len(told) == 2 and all("rank 0" in event["args"]["reason"] for event in told)
    assert all(event["ts"] <= resets[0]["ts"] for event in failures)
    seen: dict[int, set[int]] = {0: set(), 1: set()}
    for event in events:
        if event["name"] == "ALLREDUCE":
            world = event["args"]["world"]
            assert (event["ts"] >= resets[0]["ts"]) == (world == 1)
            seen[world].add(event["pid"])
    # The killed rank 0's operations are there; the others are the same processes in both worlds.
    assert len(seen[0]) == 3 and len(seen[1]) == 2 and seen[1] < seen[0]
    titles = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert sum(", then " in title for title in titles) >= 1, titles


def test_generations_are_told_by_the_names_of_the_files(tmp_path: Path) -> None:
    """Even if their clocks say something else; the merged file remembers."""
    for generation, ranks in ((1, 3), (2, 2), (10, 2)):
        for part in Job([Host("a")] * ranks, steps=12).parts():
            name = f"t.generation.{generation}.json.rank{part.rank}.part"
            (tmp_path / name).write_bytes(write_part(part))
    merged = tmp_path / "t.json"
    merged.write_text("[]")
    assert main(["merge", str(merged), "-o", str(merged)]) == 0
    events = json.loads(merged.read_text())["traceEvents"]
    instants = [event["name"] for event in events if event["ph"] == "i"]
    assert instants == ["world 2: 2 ranks", "world 3: 2 ranks"]
    for path in tmp_path.glob("*.part"):
        path.unlink()
    assert [len(world) for world in worlds(load([merged]))] == [3, 2, 2]


def test_the_network_has_a_lane_of_its_own(tmp_path: Path) -> None:
    job = Job([Host("a"), Host("a"), Host("b")], steps=12, transport="hierarchical", transfer=6 * MS)
    for part in job.parts():
        (tmp_path / f"t.json.rank{part.rank}.part").write_bytes(write_part(part))
    (tmp_path / "t.json").write_text("[]")
    assert main(["merge", str(tmp_path / "t.json"), "-o", str(tmp_path / "t.json")]) == 0
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    check_nesting(events)
    lanes = {
        event["tid"]: event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    places = {
        (event["name"], lanes[event["tid"]])
        for event in events
        if event["ph"] == "X" and event["name"] in ("within the host", "network", "share out")
    }
    assert places == {("within the host", "engine"), ("network", "network"), ("share out", "engine")}
    runs = [event for event in events if event["name"] == "ALLREDUCE"]
    assert all(event["args"]["algorithm"] == "hosts" for event in runs)


def test_parts_travel_as_one() -> None:
    parts = {"t.json.rank0.part": b"abc\n", "t.generation.2.json.rank1.part": b"", "x.part": b"1234"}
    data = packed(parts)
    assert unpacked(data) == parts
    assert unpacked(data[:-2]) == {**parts, "x.part": b"12"}
    assert unpacked(b"") == unpacked(b'{"a": 1') == {}
    assert unpacked(packed({"../../etc/x.part": b"1"})) == {"x.part": b"1"}
