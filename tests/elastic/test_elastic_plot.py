"""python -m horovod.elastic plot."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from horovod.elastic.__main__ import main
from horovod.elastic.history import read


def member(worker: int, host: str, slot: int, rank: int) -> dict[str, object]:
    return {"worker": worker, "host": host, "slot": slot, "rank": rank, "pid": 100 + worker}


def events() -> str:
    """Two hosts come, the first one goes."""
    a = [member(1, "a", 0, 0)]
    b = [member(2, "b<1>", 0, 1), member(3, "b<1>", 1, 2)]
    lines = [
        {
            "time": 10.0,
            "event": "generation",
            "generation": 1,
            "members": [member(1, "a", 0, 0)],
            "reason": "start",
        },
        {"time": 12.0, "event": "timing", "stage": "sync"},
        {
            "time": 20.0,
            "event": "generation",
            "generation": 2,
            "members": [*a, *b],
            "reason": "b<1> has come",
        },
        {"time": 35.0, "event": "generation", "generation": 3, "members": b, "reason": "a is gone"},
        {"time": 40.0, "event": "end", "code": 0},
    ]
    return "\n".join(map(json.dumps, lines)) + "\n"


def test_history() -> None:
    history = read(events())
    assert (history.start, history.end) == (10.0, 40.0)
    assert history.slots == [("a", 0), ("b<1>", 0), ("b<1>", 1)]
    assert [(each.worker, each.start, each.end) for each in history.stretches if each.slot[0] == "a"] == [
        (1, 10.0, 20.0),
        (1, 20.0, 35.0),
    ]
    assert [world.size for world in history.worlds] == [1, 3, 2]


def test_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(events())
    assert main(["plot", str(file)]) == 0
    assert "3 generations in 30.0 s" in capsys.readouterr().out
    root = ElementTree.parse(tmp_path / "events.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    bars = [rect for rect in root.iter(f"{space}rect") if rect.find(f"{space}title") is not None]
    assert len(bars) == 6
    texts = "".join(text.text or "" for text in root.iter(f"{space}text"))
    for word in ("a[0]", "b<1>[1]", "a is gone", "1 to 3 ranks"):
        assert word in texts


@pytest.mark.parametrize("text", ["", "{}\n", "nonsense\n", '{"time": 1, "event": "end"}\n'])
def test_what_is_no_events_file(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(text)
    assert main(["plot", str(file)]) == 1
    assert "horovodrun" in capsys.readouterr().err
    assert not (tmp_path / "events.svg").exists()
