"""The curves of docs/scaling.md, from its table: messages at the busiest rank, and time, by ranks."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

from svg import Picture, Theme

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
_UNITS = {"µs": 1e-6, "ms": 1e-3}


class Point(NamedTuple):
    """Of an operation of 4 bytes."""

    ranks: int
    messages: float
    star_messages: float
    seconds: float
    star_seconds: float


def _time(cell: str) -> float:
    value, unit = cell.split()
    return float(value.replace(",", "")) * _UNITS[unit]


def points(page: str) -> list[Point]:
    """Those of the table."""
    found = []
    for row in re.findall(
        r"^\| ([\d,]+ x .*) \|$", page.partition("<!-- /control -->")[0], flags=re.MULTILINE
    ):
        cells = [cell.strip().replace(",", "") for cell in row.split("|")]
        hosts, local = map(int, cells[0].split(" x "))
        times = _time(cells[6]), _time(cells[7])
        found.append(Point(hosts * local, float(cells[1]), float(cells[2]), *times))
    return found


def scaling(theme: Theme) -> Picture:
    """Both axes are logarithmic."""
    figures = points(PAGE.read_text())
    last = figures[-1]
    picture = Picture(
        960,
        380,
        "An operation of 4 bytes by the number of ranks, simulated",
        f"At {last.ranks} ranks the busiest one exchanges {last.messages:g} messages with the tree, "
        f"{last.star_messages:g} with a star; the operation takes {last.seconds * 1e3:.1f} and "
        f"{last.star_seconds * 1e3:.0f} ms.",
    )
    picture.text(
        10, 20, "A 4-byte allreduce by the number of ranks, simulated", theme.text, size=16, weight=600
    )
    for place, words, colour in ((10, "tree of leaders", theme.ours), (160, "star", theme.others[0])):
        picture.bar(place, 34, 12, 12, colour, radius=3)
        picture.text(place + 18, 45, words, theme.text)
    panels = (
        (
            60,
            "messages at the busiest rank",
            "{:,.0f}",
            1.0,
            [p.messages for p in figures],
            [p.star_messages for p in figures],
        ),
        (540, "milliseconds", "{:g}", 1e3, [p.seconds for p in figures], [p.star_seconds for p in figures]),
    )
    low, high = math.log10(figures[0].ranks), math.log10(last.ranks)
    for left, title, form, unit, ours, star in panels:
        bottom, top, width = 340.0, 90.0, 390.0
        powers = range(math.floor(math.log10(min(ours) * unit)), math.ceil(math.log10(max(star) * unit)) + 1)

        def y(value: float, powers: range = powers, top: float = top, bottom: float = bottom) -> float:
            return bottom - (bottom - top) * (math.log10(value) - powers[0]) / (powers[-1] - powers[0])

        def x(ranks: float, left: float = left, width: float = width) -> float:
            return left + width * (math.log10(ranks) - low) / (high - low)

        picture.text(left, 74, title, theme.text, size=13, weight=600)
        for power in powers:
            picture.line([(left, y(10.0**power)), (left + width, y(10.0**power))], theme.faint)
            picture.text(
                left - 6, y(10.0**power) + 4, form.format(10.0**power), theme.muted, size=12, anchor="end"
            )
        for point in figures[::2]:
            picture.text(
                x(point.ranks), bottom + 18, f"{point.ranks:,}", theme.muted, size=12, anchor="middle"
            )
        for values, colour in ((star, theme.others[0]), (ours, theme.ours)):
            line = [(x(p.ranks), y(v * unit)) for p, v in zip(figures, values, strict=True)]
            picture.line([(round(a, 1), round(b, 1)) for a, b in line], colour, width=2.4)
    return picture
