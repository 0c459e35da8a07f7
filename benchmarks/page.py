"""The comparison as a table, on the screen and in docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plan import Line, Target
from rich.console import Console
from rich.table import Table

from horovod.bench.sizes import show_time

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
_HEADINGS = (
    "ranks",
    "transport",
    "work",
    "runs",
    "ours p50",
    "peer",
    "peer p50",
    "ratio",
    "target",
    "verdict",
)
_WIDTH = 136
_NAMES = {"gloo": "gloo", "mpi": "Open MPI", "memcpy": "memcpy", None: ""}


def show_target(target: Target | None) -> str:
    """What should be reached."""
    if target is None:
        return ""
    if target.peer is None:
        return f"≤ {show_time(target.most or 0.0)}"
    if target.least is None:
        return f"≤ {target.most:g} x its time"
    return f"≥ {target.least:g} x faster" if target.least > 1 else f"≤ {1 / target.least:g} x its time"


def _cells(line: Line) -> list[str]:
    verdict = {None: "", True: "pass", False: "MISS"}[line.reached]
    return [
        str(line.np),
        line.transport,
        line.case.title,
        str(line.runs),
        show_time(line.ours),
        _NAMES[line.peer],
        "" if line.theirs is None else show_time(line.theirs),
        "" if line.ratio is None else f"{line.ratio:.2f}",
        show_target(line.target),
        verdict,
    ]


def print_table(lines: Sequence[Line]) -> None:
    """On the screen, with a count of the targets reached."""
    table = Table(title="Medians, interleaved in the same processes", title_justify="left")
    for heading in _HEADINGS:
        table.add_column(heading, no_wrap=True)
    for line in lines:
        style = {None: "", True: "green", False: "red"}[line.reached]
        table.add_row(*_cells(line), style=style)
    console = Console(highlight=False)
    (console if console.width >= _WIDTH else Console(highlight=False, width=_WIDTH)).print(table)
    console.print(score(lines))


def score(lines: Sequence[Line]) -> str:
    """How many targets are reached."""
    verdicts = [line.reached for line in lines if line.reached is not None]
    return f"{sum(verdicts)} of {len(verdicts)} targets reached."


def markdown(lines: Sequence[Line]) -> str:
    """The table for the page."""
    rows = [_HEADINGS, ["---"] * len(_HEADINGS), *(_cells(line) for line in lines)]
    return "\n".join("| " + " | ".join(cell or " " for cell in row) + " |" for row in rows)


def around(page: Path) -> tuple[str, str]:
    """What stands before and after the table in `page`. OSError, or ValueError if it has no place for one."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no line {BEGIN} followed by {END}: put them where the table belongs")
    return before, after


def update(page: Path, text: str) -> None:
    """Puts `text` between the markers of `page`; errors as around()."""
    before, after = around(page)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
