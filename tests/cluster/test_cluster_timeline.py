"""A timeline of several hosts: parts of all come back, and nothing of them stays there."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from cluster_hosts import Hosts
from cluster_job import horovodrun

TRAIN = Path(__file__).parents[1] / "timeline" / "train.py"


@pytest.mark.parametrize("elastic", [[], ["--min-np", "4"]], ids=["fixed", "elastic"])
def test_one_file_of_all_hosts(hosts: Hosts, tmp_path: Path, elastic: list[str]) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    flags = ["-np", "4", *elastic, "-H", "host1:2,host2:2", "--timeline", tmp_path / "t.json"]
    env = {"TMPDIR": str(temporary)}
    result = horovodrun(hosts, *flags, sys.executable, TRAIN, "--steps", "24", env=env)
    assert result.returncode == 0, result.stderr
    assert "timeline of 4 ranks" in result.stderr and ", 2 hosts." in result.stderr, result.stderr
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    titles = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert [title.rpartition(" · ")[0] for title in titles] == [
        "rank 0 · host1",
        "rank 1 · host1",
        "rank 2 · host2",
        "rank 3 · host2",
    ]
    runs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["name"] == "ALLREDUCE":
            runs[event["args"]["operation"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(runs) >= 24 and all(len(spans) == 4 for spans in runs.values())
    for spans in runs.values():  # nobody ends before all have begun
        assert max(begin for begin, _ in spans) <= min(end for _, end in spans) + 0.002
    assert list(tmp_path.glob("*.part")) == [] and list(temporary.iterdir()) == []
