"""The figures for people (a table) and for programs (JSON)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from horovod.bench.results import Row
from horovod.bench.sizes import show_size, show_time

_LEAST_WIDTH = 90  # a log file has no width of its own, and the table needs this much


def console() -> Console:
    """Where to print, wide enough for the table."""
    found = Console(highlight=False)
    return found if found.width >= _LEAST_WIDTH else Console(highlight=False, width=_LEAST_WIDTH)


def table(benchmark: str, description: str, rows: Sequence[Row]) -> Table:
    """One benchmark's rows."""
    made = Table(title=f"{benchmark}: {description}", title_justify="left", title_style="bold")
    made.add_column("operation")
    for heading in ("size", "runs", "min", "p50", "p99", "GB/s", "bus GB/s", "/ memcpy"):
        made.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        what = row.operation if row.tensors <= 1 else f"{row.tensors} tensors"
        ratio = row.memcpy_ratio
        made.add_row(
            what,
            show_size(row.size) if row.size else "",
            str(row.time.count),
            show_time(row.time.min),
            show_time(row.time.p50),
            show_time(row.time.p99),
            # Of four bytes these would say nothing.
            "" if ratio is None else _gigabytes(row.algorithm_bandwidth),
            "" if ratio is None else _gigabytes(row.bus_bandwidth),
            "" if ratio is None else f"{ratio:.2f}",
        )
    return made


def _gigabytes(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:.2f}"


def headline(np: int, dtype: str, machine: dict[str, Any]) -> str:
    """What the figures are about, in a line."""
    return (
        f"Horovod {machine['horovod']}: {np} processes, {dtype}, transport {machine['transport']}, "
        f"{machine['cores']} cores of {machine['cpu']}, load {machine['load']:.1f}"
    )


def write_json(path: Path, np: int, machine: dict[str, Any], rows: Sequence[Row]) -> None:
    """Times are in seconds, bandwidths in bytes per second."""
    document = {"np": np, "machine": machine, "rows": [row.as_json() for row in rows]}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
