"""Draws line charts as PNG files and as one HTML page without other files, for light and dark screens."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # there may be no screen
from matplotlib import pyplot
from matplotlib.ticker import MaxNLocator

# Colours of a chart on light ground. In the page each becomes a CSS variable, which dark mode changes.
INK, MUTED, GRID, FIRST, SECOND = "#1d2330", "#5f6878", "#e3e6eb", "#2a78d6", "#e2632c"
_VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", FIRST: "first", SECOND: "second"}
_STYLE = """
:root { color-scheme: light dark; --page: #f5f6f8; --card: #fff; --ink: #1d2330; --muted: #5f6878;
  --grid: #e3e6eb; --first: #2a78d6; --second: #e2632c; }
@media (prefers-color-scheme: dark) { :root { --page: #12151b; --card: #1b2029; --ink: #eceff4; 
  --muted: #a2abba; --grid: #313845; --first: #5b9df0; --second: #f08a5a; } }
body { background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem; }
h1 { font-size: 1.6rem; margin: 0 0 1.25rem; } h2 { font-size: 1rem; margin: 0 0 .5rem; }
.tiles, .charts { display: grid; gap: 1rem; margin-bottom: 1rem; }
.tiles { grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); }
.charts { grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); }
.card { background: var(--card); border: 1px solid var(--grid); border-radius: .6rem;
  padding: 1rem; min-width: 0; }
.tiles b { display: block; font-size: 1.7rem; font-weight: 600; } .tiles span { color: var(--muted); }
svg { width: 100%; height: auto; display: block; } svg text { font-family: system-ui, sans-serif !important; }
summary { cursor: pointer; } .wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin-top: .75rem; }
th, td { padding: .25rem 1.25rem .25rem 0; text-align: right; border-bottom: 1px solid var(--grid); }
th { color: var(--muted); font-weight: 500; }
"""


@dataclass(frozen=True)
class Line:
    """A curve; `second` chooses the other colour, `guide` a thin dashed line to compare with."""

    label: str
    values: Sequence[float]
    second: bool = False
    guide: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines over a common x axis of whole numbers; `name` is that of the PNG file."""

    name: str
    title: str
    x: Sequence[float]
    lines: Sequence[Line]
    x_title: str = "Epoch"
    from_zero: bool = False


def write_page(
    directory: Path,
    title: str,
    tiles: Sequence[tuple[str, str]],
    charts: Sequence[Chart],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> Path:
    """Writes <name>.png for each chart and report.html, whose path it returns."""
    figures = [
        f'<div class="card"><h2>{html.escape(c.title)}</h2>{_draw(c, directory)}</div>' for c in charts
    ]
    boxes = [
        f'<div class="card"><span>{html.escape(name)}</span><b>{html.escape(value)}</b></div>'
        for name, value in tiles
    ]
    page = directory / "report.html"
    page.write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{html.escape(title)}</h1><div class="tiles">{"".join(boxes)}</div>'
        f'<div class="charts">{"".join(figures)}</div>'
        f'<details class="card"><summary>All figures</summary>'
        f'<div class="wide">{_table(head, rows)}</div></details>'
        "</main></body></html>\n",
        encoding="utf-8",
    )
    return page


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"


def _draw(chart: Chart, directory: Path) -> str:
    """Saves the PNG and returns the same drawing as SVG for the page."""
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": chart.name, "font.size": 10}):
        figure, axes = pyplot.subplots(figsize=(4.8, 3.0), layout="constrained")
        for line in chart.lines:
            colour = MUTED if line.guide else SECOND if line.second else FIRST
            width, style, marker = (1.2, "--", "") if line.guide else (2.2, "-", "o")
            axes.plot(
                chart.x, line.values, style, marker=marker, ms=4, lw=width, color=colour, label=line.label
            )
        axes.set_xlabel(chart.x_title, color=MUTED)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes.tick_params(colors=MUTED, length=0)
        axes.grid(axis="y", color=GRID)
        axes.set_axisbelow(True)
        axes.spines[:].set_visible(False)
        axes.spines["bottom"].set(visible=True, color=GRID)
        if chart.from_zero:
            axes.set_ylim(bottom=0)
        if len(chart.lines) > 1:
            axes.legend(
                frameon=False, labelcolor=INK, ncols=len(chart.lines), loc="lower left", bbox_to_anchor=(0, 1)
            )
        vector = io.StringIO()
        figure.savefig(vector, format="svg", transparent=True, metadata={"Date": None})
        if len(chart.lines) == 1:  # nothing else in the file says what it shows
            axes.set_title(chart.title, color=INK, loc="left")
        else:
            axes.set_ylabel(chart.title, color=INK)
        figure.savefig(directory / f"{chart.name}.png", dpi=200)
        pyplot.close(figure)
    svg = vector.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return svg
