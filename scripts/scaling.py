"""Simulates worlds of up to 4,096 hosts and writes the tables of docs/scaling.md: make scaling

With --check runs real jobs here instead, and writes the table that compares them with the simulator.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from scaling_start import start

from horovod._bootstrap.world.lanes import peers_of
from horovod._bootstrap.world.tree import parents_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scaling.md"
SIMULATOR = ROOT / "build" / "editable" / "simulate"
HOROVODRUN = str(Path(sys.executable).with_name("horovodrun"))
LOCAL = 8  # ranks of a host
HOSTS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
MOST_STEPS = 4096  # hosts up to which a step of many tensors is simulated: the last takes 9 GB
MOST_STAR = 512  # the same of the star
MOST_ALLTOALL = 256
MIB = 1 << 20
STEP_SECONDS = 0.25  # of computing, assumed
BACKWARD = 2 / 3  # of that

# Real runs: all hosts are on this machine and connected by its loopback. What a message costs was fitted to
# earlier runs; the rest is measured by the check.
HERE = {
    "one_machine": 1.0,
    "processors": 2.0,
    "latency": 5e-6,
    "port_byte": 2e-10,
    "local_message": 0.3e-6,
    "remote_message": 8e-6,
}
CHECKED = ((2, 4), (2, 8), (4, 8), (8, 8), (16, 8))
FIRST = (2, 8)  # what waking up and submitting cost there comes from real runs
BLOCKING, STEPS, TENSORS, RUNS, TURNS = 200, 5, 200, 5, 100

Figures = dict[str, float]


def hosts_of(hosts: int, local: int) -> list[int]:
    """The host of each rank."""
    return [host for host in range(hosts) for _ in range(local)]


@functools.cache
def _simulated(hosts: int, local: int, star: bool, settings: tuple[tuple[str, float], ...]) -> Figures:
    if not SIMULATOR.exists():
        raise SystemExit(f"{SIMULATOR.relative_to(ROOT)} is not there: make {SIMULATOR.relative_to(ROOT)}")
    parents = [0] * (hosts * local) if star else parents_of(hosts_of(hosts, local))
    words = [
        str(SIMULATOR),
        f"hosts={hosts}",
        f"local={local}",
        *(f"{name}={value}" for name, value in settings),
    ]
    run = subprocess.run(
        words, input=" ".join(map(str, parents)), text=True, stdout=subprocess.PIPE, check=True, timeout=600
    )
    figures: Figures = json.loads(run.stdout)
    return figures


def simulated(hosts: int, local: int = LOCAL, *, star: bool = False, **settings: float) -> Figures:
    """What the simulator says of such a world; `star`: rank 0 hears every rank itself."""
    return _simulated(hosts, local, star, tuple(sorted(settings.items())))


def seconds(value: float) -> str:
    """In a unit that suits it."""
    return f"{value * 1e6:,.0f} µs" if value < 1e-3 else f"{value * 1e3:,.{1 if value < 0.1 else 0}f} ms"


def size_of(value: float) -> str:
    """Bytes in a unit that suits them."""
    for unit, name in ((1 << 30, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if value >= unit:
            return f"{value / unit:,.1f} {name}"
    return f"{value:.0f} B"


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """In Markdown."""
    return "\n".join([_row(head), "|" + "---:|" * len(head), *map(_row, rows)])


def control_row(hosts: int) -> list[str]:
    """Of one operation: the busiest rank, and how long."""
    tree, star = simulated(hosts, tensors=0), simulated(hosts, star=True, tensors=0)
    both = "alltoall_bytes" if hosts <= MOST_ALLTOALL else ""
    spread = simulated(hosts, tensors=0, alltoall=1) if both else {}
    return [
        f"{hosts:,} x {LOCAL}",
        f"{tree['cached_messages']:,.0f}",
        f"{star['cached_messages']:,.0f}",
        size_of(tree["first_bytes"]),
        size_of(tree["cached_bytes"]),
        size_of(spread[both]) if both else "",
        seconds(tree["cached_seconds"]),
        seconds(star["cached_seconds"]),
    ]


def step_row(hosts: int) -> list[str]:
    """200 small tensors at once."""
    tree = simulated(hosts)
    star = simulated(hosts, star=True) if hosts <= MOST_STAR else None
    return [
        f"{hosts:,} x {LOCAL}",
        f"{tree['step_messages']:,.0f}",
        size_of(tree["step_bytes"]),
        seconds(tree["step_seconds"]),
        "" if star is None else f"{star['step_messages']:,.0f}",
        "" if star is None else seconds(star["step_seconds"]),
    ]


def data_row(hosts: int) -> list[str]:
    """Allreduces of one tensor, and what they leave of a training's speed."""
    mib, many = simulated(hosts, bytes=MIB), simulated(hosts, bytes=100 * MIB)
    agreed = simulated(hosts, tensors=0)["cached_seconds"]
    exposed = max(agreed + mib["seconds"], many["seconds"] - BACKWARD * STEP_SECONDS)
    return [
        f"{hosts:,} x {LOCAL}",
        f"{mib['messages']:.0f}",
        seconds(mib["seconds"]),
        f"{many['messages']:.0f}",
        seconds(many["seconds"]),
        f"{STEP_SECONDS / (STEP_SECONDS + agreed + many['seconds']):.3f}",
        f"{STEP_SECONDS / (STEP_SECONDS + exposed):.3f}",
    ]


def start_row(hosts: int) -> list[str]:
    """Connections of rank 0 and of the last rank; what the server and rank 0 send."""
    places = hosts_of(hosts, LOCAL)
    size = len(places)
    below = sum(1 for parent in parents_of(places)[1:] if parent == 0)
    sent = start(places)
    return [
        f"{hosts:,} x {LOCAL}",
        f"{below}",
        f"{len(peers_of(0, places))}",
        f"{below}",
        f"{1 + len(peers_of(size - 1, places)) + 2:,}",
        size_of(sent.to_first),
        size_of(sent.to_other),
        size_of(sent.to_all),
        size_of(sent.passed_on),
    ]


TABLES: dict[str, tuple[Sequence[str], Callable[[int], list[str]], int]] = {
    "control": (
        (
            "ranks",
            "messages",
            "of a star",
            "bytes, first time",
            "bytes, again",
            "alltoall, new splits",
            "4 bytes",
            "of a star",
        ),
        control_row,
        HOSTS[-1],
    ),
    "step": (
        ("ranks", "messages", "bytes", "step", "messages of a star", "step of a star"),
        step_row,
        MOST_STEPS,
    ),
    "data": (
        (
            "ranks",
            "1 MiB: messages",
            "time",
            "100 MiB: messages",
            "time",
            "efficiency, no overlap",
            "with overlap",
        ),
        data_row,
        HOSTS[-1],
    ),
    "start": (
        (
            "ranks",
            "rank 0: control",
            "data",
            "watch",
            "last rank: all",
            "server: to rank 0",
            "to another",
            "to all",
            "rank 0: to those below",
        ),
        start_row,
        HOSTS[-1],
    ),
}


def rows(name: str, hosts: Iterable[int] = HOSTS) -> list[list[str]]:
    """Those of a table of the page."""
    _, row, most = TABLES[name]
    return [row(count) for count in hosts if count <= most]


def put(name: str, content: str) -> None:
    """Into the page, between the marks of that name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    page = PAGE.read_text()
    assert page.count(begin) == page.count(end) == 1, f"{PAGE.name} has no place for the table '{name}'"
    PAGE.write_text(re.sub(f"{begin}.*{end}", f"{begin}\n\n{content}\n\n{end}", page, flags=re.DOTALL))


def real(hosts: int, local: int, blocking: int = BLOCKING, steps: int = STEPS) -> Figures:
    """The same of a real job on this machine."""
    topology = ",".join([str(local)] * hosts)
    words = [HOROVODRUN, "-np", str(hosts * local)]
    rank = [
        sys.executable,
        str(ROOT / "scripts" / "scaling_rank.py"),
        str(blocking),
        str(steps),
        str(TENSORS),
    ]
    run = subprocess.run(
        [*words, *rank],
        env={**os.environ, "HOROVOD_TOPOLOGY": topology},
        text=True,
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    figures: Figures = json.loads(run.stdout[run.stdout.index("{") :])
    return figures


def turn_seconds(processes: int) -> float:
    """What a turn costs a processor if so many processes, each by itself, take turns on all processors."""
    rings = int(HERE["processors"])
    pipes = [os.pipe() for _ in range(processes)]
    program = str(ROOT / "scripts" / "scaling_turns.py")
    started = []
    for number, (mine, _) in enumerate(pipes):
        following = pipes[(number + rings) % processes][1]
        words = [sys.executable, program, *map(str, (mine, following, TURNS))]
        ends = (mine, following)
        started.append(subprocess.Popen(words, pass_fds=ends, stdout=subprocess.PIPE, text=True))
    for _, first in pipes[:rings]:
        os.write(first, b"x")
    laps = [float(process.communicate(timeout=300)[0]) for process in started]
    for end in itertools.chain.from_iterable(pipes):
        os.close(end)
    return statistics.median(laps) * rings / processes


def step_seconds(jobs: int) -> float:
    """What a step of many tensors costs a processor for each rank if so many jobs of 8 are at it at once."""
    words = [HOROVODRUN, "-np", str(LOCAL), sys.executable, str(ROOT / "scripts" / "scaling_beside.py")]
    words += [str(time.time() + 5 + jobs), "3", str(TENSORS)]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(jobs)]
    steps = [float(job.communicate(timeout=300)[0].rpartition(":")[2]) for job in started]
    return statistics.median(steps) * HERE["processors"] / (jobs * LOCAL)


def calibrated(hosts: int, local: int, measured: Figures) -> dict[str, float]:
    """What waking up and submitting cost, so that the simulator's times are those of this job."""
    found = {"wake": 3e-6, "submit": 5e-6}

    def search(cost: str, figure: str) -> None:
        low, high = 0.0, 200e-6
        for _ in range(14):
            found[cost] = (low + high) / 2
            less = simulated(hosts, local, star=False, **HERE, **found)[figure] < measured[figure]
            low, high = (found[cost], high) if less else (low, found[cost])

    for _ in range(3):
        search("wake", "cached_seconds")
        search("submit", "step_seconds")
    return found


@functools.cache
def cost(measure: Callable[[int], float], count: int) -> float:
    """The least of several measurements."""
    return min(measure(count) for _ in range(3))


def growth(measure: Callable[[int], float], count: int, first: int) -> float:
    """How much dearer a rank's work is than with as few as in the first row."""
    return cost(measure, count) / cost(measure, first)


def check() -> str:
    """The table of real runs beside the simulator's figures."""
    jobs = {row: [real(*row) for _ in range(RUNS)] for row in CHECKED}
    middle = {name: statistics.median(run[name] for run in jobs[FIRST]) for name in jobs[FIRST][0]}
    costs = calibrated(*FIRST, middle)
    print(f"wake {costs['wake'] * 1e6:.1f} µs, submit {costs['submit'] * 1e6:.1f} µs")
    lines = []
    for (hosts, local), runs in jobs.items():
        ranks, first = hosts * local, FIRST[0] * FIRST[1]
        alone, many = growth(turn_seconds, ranks, first), growth(step_seconds, ranks // LOCAL, first // LOCAL)
        dearer = {name: HERE[name] * alone for name in ("local_message", "remote_message")}
        dearer |= {"wake": costs["wake"] * alone, "submit": costs["submit"] * many}
        ours = simulated(hosts, local, star=False, **{**HERE, **dearer})
        cells = [f"{hosts} x {local}"]
        for name in ("first_messages", "cached_messages"):
            cells += ["/".join(sorted({f"{run[name]:g}" for run in runs})), f"{ours[name + '_rank_0']:g}"]
        for name, factor in (("cached_seconds", alone), ("step_seconds", many)):
            times = sorted(run[name] for run in runs)
            median = statistics.median(times)
            cells += [f"{factor:.2f}", f"{seconds(median)} ({seconds(times[0])} to {seconds(times[-1])})"]
            cells.append(f"{seconds(ours[name])} ({ours[name] / median - 1:+.0%})")
        lines.append(cells)
        print(_row(cells), flush=True)
    head = ["ranks", "messages, first time", "simulated", "again", "simulated"]
    return table(
        [*head, "dearer", "4 bytes", "simulated", "dearer", f"{TENSORS} tensors", "simulated"], lines
    )


def main() -> None:
    """Writes the page's tables, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="run real jobs and compare")
    parser.add_argument("--only", choices=TABLES, help="only this table")
    arguments = parser.parse_args()
    if arguments.check:
        put("check", check())
        return
    for name in [arguments.only] if arguments.only else TABLES:
        put(name, table(TABLES[name][0], rows(name)))
        print(name, flush=True)


if __name__ == "__main__":
    main()
