"""Draws the pictures of the README, light and dark: python scripts/draw_pictures.py

An operation's life, charts of the figures in docs/benchmarks.md and docs/scaling.md, and an elastic job. A
test compares the files with what this draws, so draw them again when the figures have changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scaling_chart import scaling
from svg import THEMES, Picture, Theme

from horovod.elastic.history import read
from horovod.elastic.plot import drawn

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
TIMES = "\N{MULTIPLICATION SIGN}"
FIGURES = ROOT / "docs" / "benchmarks.md"
EVENTS = ROOT / "docs" / "elastic-events.jsonl"  # of `make demo-elastic`


def operation(theme: Theme) -> Picture:
    """Who does what while an allreduce of two ranks goes on; time runs to the right."""
    picture = Picture(
        960,
        432,
        "The life of an operation",
        "Both ranks announce the tensor to the coordinator, each when it has it. When all have, the "
        "coordinator tells both engines to start; they combine the values in rank order and wake the "
        "programs.",
    )
    ink = "#ffffff" if theme.name == "light" else "#0d1117"
    coordinator = theme.others[1]
    lanes = (
        (40, "your program", theme.text, ()),
        (115, "engine", theme.ours, ((150, 608), (760, 950))),
        (190, "coordinator", coordinator, ((150, 340),)),
        (265, "engine", theme.ours, ((150, 608), (760, 950))),
        (340, "your program", theme.text, ()),
    )
    for y, who, colour, idle in lanes:
        picture.text(140, y + 5, who, colour, anchor="end", weight=600)
        for start, end in idle:
            picture.line([(start, y), (end, y)], theme.faint)
    for y, rank in ((77, "rank 0"), (302, "rank 1")):
        picture.text(10, y + 5, rank, theme.muted)
    for y, call in ((40, 300), (340, 430)):
        picture.bar(150, y - 13, call - 150, 26, theme.muted, opacity=0.28)
        picture.text((150 + call) / 2, y + 5, "backward pass", theme.text, size=13, anchor="middle")
        picture.bar(call, y - 13, 810 - call, 26, theme.muted, opacity=0.12)
        picture.bar(call - 2, y - 17, 4, 34, theme.text, radius=2)
        picture.bar(808, y - 17, 4, 34, theme.text, radius=2)
        picture.text((call + 810) / 2, y + 5, "goes on, or waits", theme.muted, size=13, anchor="middle")
        picture.text(822, y + 5, "result", theme.text, size=13)
    picture.text(308, 16, 'hvd.allreduce(gradient, name="w")', theme.text, size=13, mono=True)
    picture.text(438, 376, 'hvd.allreduce(gradient, name="w")', theme.text, size=13, mono=True)
    picture.line([(300, 57), (338, 176)], theme.text, width=1.6, ends="end")
    picture.line([(430, 323), (468, 204)], theme.text, width=1.6, ends="end")
    picture.bar(340, 177, 232, 26, coordinator, opacity=0.22)
    picture.text(404, 195, "rank 0 has it", theme.text, size=13, anchor="middle")
    picture.bar(468, 175, 4, 30, coordinator, radius=2)
    picture.text(522, 195, "all have it", theme.text, size=13, anchor="middle")
    picture.line([(572, 177), (606, 133)], coordinator, width=1.6, ends="end")
    picture.line([(572, 203), (606, 247)], coordinator, width=1.6, ends="end")
    for y in (115, 265):
        picture.bar(608, y - 15, 152, 30, theme.ours)
        picture.text(684, y + 5, "x0 + x1", ink, size=14, anchor="middle", mono=True)
    picture.line([(684, 134), (684, 246)], theme.ours, width=1.6, ends="both")
    picture.text(694, 182, "shared memory,", theme.muted, size=13)
    picture.text(694, 206, "TCP or MPI", theme.muted, size=13)
    picture.line([(760, 100), (806, 59)], theme.ours, width=1.6, ends="end")
    picture.line([(760, 280), (806, 321)], theme.ours, width=1.6, ends="end")
    for x, y, number in ((322, 126, 1), (444, 279, 1), (572, 190, 2), (592, 153, 3), (592, 227, 3)):
        picture.number(x, y, number, theme.text, ink)
    for x, y, number in ((621, 115, 4), (621, 265, 4), (783, 80, 5), (783, 300, 5)):
        picture.number(x, y, number, theme.text, ink)
    steps = ("announce", "all ranks have it", "release, perhaps fused", "combine in rank order", "wake up")
    at = 22.0
    for number, step in enumerate(steps, 1):
        picture.number(at, 412, number, theme.text, ink)
        picture.text(at + 18, 417, step, theme.text)
        at += 78 + 7.4 * len(step)
    return picture


class Ratio(NamedTuple):
    """A peer's time divided by ours."""

    work: str
    peer: str
    value: float


def ratios(page: str) -> Iterator[Ratio]:
    """Those of two ranks over shared memory, and of training with PyTorch, as the page has them."""
    for row in re.findall(r"^\| 2 \| shm \| (.*) \|$", page, flags=re.MULTILINE):
        work, _runs, _ours, peer, _theirs, ratio, *_ = (cell.strip() for cell in row.split("|"))
        if peer in ("gloo", "Open MPI"):
            yield Ratio(work.removeprefix("allreduce "), peer, float(ratio))
    training = page.partition("<!-- torch-ddp -->")[2].partition("<!-- /torch-ddp -->")[0]
    for model, ratio in re.findall(
        r"^\| (\w+) (?:\| [\d.,]+ ){5}\| ([\d.]+) \|", training, flags=re.MULTILINE
    ):
        yield Ratio(f"training step of a {model}", "DDP on gloo", float(ratio))


def benchmarks(theme: Theme) -> Picture:
    """How many times our time others take, on a logarithmic scale around 1."""
    figures = list(ratios(FIGURES.read_text()))
    works = list(dict.fromkeys(ratio.work for ratio in figures))
    peers = dict(zip(("gloo", "Open MPI", "DDP on gloo"), theme.others, strict=True))
    thick, gap, top = 15, 11, 62
    rows = sum(1 for _ in figures)
    height = top + rows * (thick + 2) + len(works) * gap + 26
    picture = Picture(
        960,
        height,
        "Others' time divided by Horovod's",
        "; ".join(f"{ratio.work}: {ratio.peer} {ratio.value:g}" for ratio in figures),
    )
    smallest = min(1 / 16, *(ratio.value for ratio in figures))
    largest = max(16, *(ratio.value for ratio in figures))
    left, right = 300, 890
    scale = (right - left) / math.log2(largest / smallest)

    def place(value: float) -> float:
        return left + scale * math.log2(value / smallest)

    picture.text(
        10, 20, "Time in multiples of Horovod's, two ranks on one machine", theme.text, size=16, weight=600
    )
    x = 10.0
    for peer, colour in peers.items():
        picture.bar(x, 34, 12, 12, colour, radius=3)
        picture.text(x + 18, 45, peer, theme.text)
        x += 46 + 7.4 * len(peer)
    bottom = height - 24
    for power in range(math.ceil(math.log2(smallest)), math.floor(math.log2(largest)) + 1, 2):
        at = place(2.0**power)
        picture.line([(at, top), (at, bottom)], theme.faint)
        label = f"{2**power}{TIMES}" if power >= 0 else f"1/{2**-power}"
        picture.text(at, bottom + 17, label, theme.muted, size=12, anchor="middle")
    picture.text(place(1) + 8, 45, "Horovod is faster →", theme.muted, size=13)
    picture.text(place(1) - 8, 45, "← slower", theme.muted, size=13, anchor="end")
    y = top + gap / 2
    for work in works:
        mine = [ratio for ratio in figures if ratio.work == work]
        middle = y + len(mine) * (thick + 2) / 2
        picture.text(left - 54, middle + 4, work, theme.text, size=13, anchor="end")
        for ratio in mine:
            start, end = sorted((place(1), place(ratio.value)))
            picture.bar(start, y, end - start, thick, peers[ratio.peer], radius=2)
            faster = ratio.value >= 1
            picture.text(
                end + 5 if faster else start - 5,
                y + 12,
                f"{ratio.value:g}{TIMES}",
                theme.text,
                size=12,
                anchor="start" if faster else "end",
            )
            y += thick + 2
        y += gap
    picture.line([(place(1), top - 6), (place(1), bottom)], theme.ours, width=2)
    return picture


def pictures() -> Iterator[tuple[Path, str]]:
    """Every file and its content."""
    for theme in THEMES:
        for name, draw in (("operation", operation), ("benchmarks", benchmarks), ("scaling", scaling)):
            yield PICTURES / f"{name}-{theme.name}.svg", draw(theme).svg()
    yield PICTURES / "elastic.svg", drawn(read(EVENTS.read_text()))  # light or dark by itself


if __name__ == "__main__":
    for path, content in pictures():
        path.write_text(content)
        print(path.relative_to(ROOT))
