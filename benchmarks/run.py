"""Compares Horovod with torch.distributed's gloo and with Open MPI.

All contenders run alternately in the same processes, so that the machine's mood hits them alike. Prints a
table with our targets and writes it to docs/benchmarks.md, whatever it shows.

    benchmarks/setup.sh && .venv-bench/bin/python benchmarks/run.py
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import page
from launching import LaunchError, measure, mpi_available
from plan import LAUNCHES, Launch, Line, compare

from horovod.bench.results import machine

ROOT = Path(__file__).resolve().parents[1]


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 1 if a launch failed; a missed target is a result, not a failure."""
    options = _parse(argv)
    if importlib.util.find_spec("torch") is None:
        print(
            "run.py: torch is missing here: run benchmarks/setup.sh, then .venv-bench/bin/python",
            file=sys.stderr,
        )
        return 2
    try:
        if options.page:
            page.around(options.page)  # now rather than after minutes of measuring
    except (OSError, ValueError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    launches = [
        launch for launch in LAUNCHES if launch.np in options.np and launch.transport in options.transports
    ]
    if options.no_mpi or not mpi_available():
        print("run.py: without Open MPI" + ("" if options.no_mpi else ": mpirun or mpi4py is missing"))
        launches = [replace(launch, mpi=False) for launch in launches]
    facts = {**machine(), "packages": _packages()}
    lines: list[Line] = []
    raw: list[dict[str, Any]] = []
    failed = False
    for launch in launches:
        print(f"--- {_describe(launch)}", flush=True)
        started = time.monotonic()
        try:
            found = measure(launch, options.seconds, options.limit)
        except LaunchError as error:
            print(f"run.py: {_describe(launch)}: {error}", file=sys.stderr)
            failed = True
            continue
        print(f"--- took {time.monotonic() - started:.0f} s", flush=True)
        medians = {key: {name: s["p50"] for name, s in by_name.items()} for key, by_name in found.items()}
        runs = {key: by_name["ours"]["count"] for key, by_name in found.items()}
        lines += compare(launch, medians, runs)
        raw.append({"np": launch.np, "transport": launch.transport, "mpi": launch.mpi, "cases": found})
    page.print_table(lines)
    if options.json:
        options.json.write_text(
            json.dumps({"machine": facts, "launches": raw}, indent=2) + "\n", encoding="utf-8"
        )
    if options.page and not failed:
        page.update(options.page, _page_text(argv, facts, lines))
        print(f"Written to {options.page}")
    return 1 if failed else 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--np", type=_numbers, default=[2, 4], metavar="LIST", help="2, 4 or 2,4 (default)")
    parser.add_argument(
        "--transports", default="shm,tcp", metavar="LIST", help="shm, tcp or shm,tcp (default)"
    )
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="for each piece of work (default: 6); at least 15 rounds"
    )
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each launch (default: 900)")
    parser.add_argument("--no-mpi", action="store_true", help="leave Open MPI out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--page",
        type=Path,
        default=ROOT / "docs" / "benchmarks.md",
        metavar="FILE",
        help="where the table goes (default: docs/benchmarks.md)",
    )
    parser.add_argument("--no-page", dest="page", action="store_const", const=None, help="write no page")
    options = parser.parse_args(argv)
    options.transports = options.transports.split(",")
    return options


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _packages() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("torch", "mpi4py"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _describe(launch: Launch) -> str:
    return f"{launch.np} ranks, {launch.transport}" + (", with Open MPI" if launch.mpi else "")


def _page_text(argv: Sequence[str], facts: dict[str, Any], lines: Sequence[Line]) -> str:
    command = shlex.join([".venv-bench/bin/python", "benchmarks/run.py", *argv])
    packages = ", ".join(f"{name} {number}" for name, number in facts["packages"].items())
    day = datetime.datetime.now(tz=datetime.timezone.utc).date()
    return (
        f"Made by `{command}` on {day} on {facts['cores']} cores of {facts['cpu']}, {facts['system']}, "
        f"Python {facts['python']}, numpy {facts['numpy']}, {packages}; load before the start "
        f"{facts['load']:.1f}, at the end {os.getloadavg()[0]:.1f}. {page.score(lines)}\n\n"
        f"{page.markdown(lines)}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
