"""Makes the pictures of the timeline and the dashboard from a real job: python scripts/draw_observing.py

The job is tests/timeline/train.py on two ranks, of which rank 1 sleeps in every step. The dashboard is looked
at with Chromium (Debian's package chromium).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from svg import THEMES, Picture, Theme

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests" / "dashboard"), str(ROOT / "tests" / "support")]
from chromium import Chromium  # noqa: E402

SCREENS = ROOT / "docs" / "screens"
PROGRAM = ROOT / "tests" / "timeline" / "train.py"
WORK = ["--steps", "200", "--compute", "0.03", "--late-rank", "1", "--late", "0.02", "--mark-steps"]
_STEPS = slice(100, 103)  # what is shown: rank 0's first operations of them
_LANES = {1: "application", 2: "engine", 4: "waiting"}
_LEFT, _RIGHT, _ROW = 170, 950, 34


def run(directory: Path) -> dict[str, Any]:
    """The timeline of the job; its report is `report.html`."""
    flags = ["-np", "2", "--timeline", "t.json", "--report", "report.html", "--no-event-log"]
    command = [sys.executable, "-m", "horovod.runner.launch", *flags, "python", PROGRAM.name, *WORK]
    shutil.copy(PROGRAM, directory)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(command, cwd=directory, env={**os.environ, "PATH": path}, check=True)
    document: dict[str, Any] = json.loads((directory / "t.json").read_text(encoding="utf-8"))
    return document


def timeline(document: dict[str, Any], theme: Theme) -> Picture:
    """A few steps of both ranks, lane by lane, as a viewer shows them."""
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    first = [
        each
        for each in events
        if each["pid"] == 1 and each.get("args", {}).get("tensor") == "allreduce.grad.0"
    ]
    shown = sorted(each["ts"] for each in first)[_STEPS]
    step = (shown[-1] - shown[0]) / (len(shown) - 1)
    begin, end = shown[0] - 0.9 * step, shown[-1] + 0.2 * step
    picture = Picture(
        960,
        2 * len(_LANES) * _ROW + 82,
        "A timeline of two ranks",
        f"{len(shown)} steps. Rank 1 comes late to each of them, and rank 0 is shown waiting for it.",
    )
    colours = {1: theme.others[0], 2: theme.ours, 4: theme.others[1]}

    def x(time: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * (min(max(time, begin), end) - begin) / (end - begin), 1)

    for rank in range(2):
        for index, (lane, name) in enumerate(_LANES.items()):
            y = 20 + (rank * (len(_LANES) + 0.4) + index) * _ROW
            if index == 0:
                picture.text(10, y + 18, f"rank {rank}", theme.text, weight=600)
            picture.text(_LEFT - 12, y + 18, name, theme.muted, size=13, anchor="end")
            picture.line([(_LEFT, y + 13), (_RIGHT, y + 13)], theme.faint)
            for event in _of_lane(events, rank + 1, lane, begin, end):
                left, right = x(event["ts"]), x(event["ts"] + event["dur"])
                picture.bar(left, y, max(right - left, 1.5), 26, colours[lane], opacity=0.75, radius=2)
                if lane == 4 and right - left > 110:
                    picture.text(left + 6, y + 18, event["name"], theme.text, size=12)
    bottom = picture.height - 36
    picture.line([(_LEFT, bottom), (_RIGHT, bottom)], theme.muted)
    for milliseconds in range(0, int((end - begin) / 1000) + 1, 20):
        at = x(begin + 1000 * milliseconds)
        picture.line([(at, bottom), (at, bottom + 6)], theme.muted)
        picture.text(at, bottom + 24, f"{milliseconds} ms", theme.muted, size=12, anchor="middle")
    return picture


def _of_lane(
    events: list[dict[str, Any]], pid: int, lane: int, begin: float, end: float
) -> Iterator[dict[str, Any]]:
    for event in events:
        inside = event["ts"] + event["dur"] > begin and event["ts"] < end
        if inside and event["tid"] == 10 * pid + lane:
            yield event


def main() -> None:
    """Runs the job and writes the four files."""
    with tempfile.TemporaryDirectory(prefix="hvd-pictures-") as name:
        directory = Path(name)
        document = run(directory)
        report = directory / "report.html"
        where = f"{Path(sys.executable).parent}/"  # of no interest to anybody else
        report.write_text(report.read_text(encoding="utf-8").replace(where, ""), encoding="utf-8")
        for theme in THEMES:
            path = SCREENS / f"timeline-{theme.name}.svg"
            path.write_text(timeline(document, theme).svg(), encoding="utf-8")
            with Chromium(directory / theme.name, width=1100, dark=theme.name == "dark") as page:
                page.open(report.as_uri())
                page.wait_for("document.querySelectorAll('.rank').length == 2")
                page.screenshot(SCREENS / f"dashboard-{theme.name}.png")


if __name__ == "__main__":
    main()
