"""What watching a job costs: timeline, metrics and dashboard on and off, in turns.

    python benchmarks/observing.py              # starts two processes, prints the table
    python benchmarks/observing.py --write      # and puts it into docs/benchmarks.md

Timeline and metrics are switched on and off in the same processes. A dashboard belongs to a job, so jobs with
and without one take turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flags import above_zero, circumstances, new_parser
from section import Section

from horovod.bench.options import positive

SECTION = Section(
    "observing",
    """
## What watching costs

`python benchmarks/observing.py --write`: two ranks. *Timeline*: all ranks record to part files, in
turns with no recording, in the same processes. *Metrics*: a thread reads `hvd.metrics()` ten times
a second. *Dashboard*: jobs with `--dashboard` in turns with jobs that have `--no-event-log`.
*Nothing, again* is measured like the others, and shows what chance does. Slowdown of the median and
of the mean, which may be below zero; the target is below 2 % each.
""",
)
# Seconds by work and way of watching: median and mean
Found = dict[str, dict[str, list[float]]]
_RESULTS = "OBSERVING_RESULTS"
_READ_SECONDS = 0.1
# Runs in a row: 100 ms or more, twice as long as the thread that writes records sleeps, so that its work is
# measured as well and switching is not.
_BURSTS = {"4 B": 25_000, "64 KiB": 4_000, "161 gradients": 4, "MLP step": 50}
_JOBS = 3  # pairs; with so many rounds as there are at least it takes 3 minutes
_SECONDS = 4.0


class Switches:
    """Turns what is watched on and off."""

    def __init__(self, directory: str) -> None:
        self._file = str(Path(directory, "timeline.json"))
        self._reading = threading.Event()
        self._recording = False
        threading.Thread(target=self._read, daemon=True).start()

    def set(self, timeline: bool, metrics: bool) -> None:
        import horovod.numpy as hvd

        (self._reading.set if metrics else self._reading.clear)()
        if timeline != self._recording:
            self._recording = timeline
            hvd.start_timeline(self._file) if timeline else hvd.stop_timeline()

    def _read(self) -> None:
        import horovod.numpy as hvd

        pause = threading.Event()
        while self._reading.wait():
            hvd.metrics()
            pause.wait(_READ_SECONDS)


def works() -> dict[str, Callable[[], object]]:
    """What is timed, by its name in the table."""
    import numpy as np
    import torch
    from peers import Ours

    import horovod.torch as hvd
    from horovod.bench import resnet50

    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU()
    )
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.01), named_parameters=model.named_parameters()
    )
    images = torch.randn(64, 784)

    def step() -> None:
        optimizer.zero_grad()
        model(images).square().mean().backward()
        optimizer.step()

    ours, shapes = Ours(), resnet50.gradients()
    return {
        "4 B": ours.allreduce(np.zeros(1, np.float32)),
        "64 KiB": ours.allreduce(np.zeros(16384, np.float32)),
        "161 gradients": ours.step(np.zeros(resnet50.count(shapes), np.float32), shapes),
        "MLP step": step,
    }


def rank(results: str, seconds: float) -> None:
    """Rank 0 writes the median and the mean of each work and way of watching."""
    import horovod.numpy as hvd
    from horovod.bench.measure import Contender, Pace, interleave

    hvd.init()
    found: Found = {}
    with tempfile.TemporaryDirectory(prefix="hvd-observing-") as directory:
        switches = Switches(directory)
        for name, work in works().items():
            nothing = (False, False)
            ways = {"off": nothing, "again": nothing, "timeline": (True, False), "metrics": (False, True)}
            contenders = [
                Contender(way, work, lambda on=on: switches.set(*on))  # type: ignore[misc]
                for way, on in ways.items()
            ]
            summaries = interleave(contenders, Pace(None, seconds, _BURSTS[name]))
            found[name] = {way: [summary.p50, summary.mean] for way, summary in summaries.items()}
        switches.set(False, False)
    if hvd.rank() == 0:
        Path(results).write_text(json.dumps(found), encoding="utf-8")
    hvd.shutdown()


def launch(seconds: float, *flags: str) -> Found:
    """One job; what its rank 0 has found."""
    with tempfile.TemporaryDirectory(prefix="hvd-observing-") as directory:
        results = Path(directory, "results.json")
        environment = {
            **os.environ,
            _RESULTS: str(results),
            "HOROVOD_TIMELINE": "DYNAMIC",
            "HOROVOD_TIMELINE_RANKS": "all",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", *flags]
        program = [sys.executable, __file__, "--seconds", str(seconds)]
        subprocess.run([*command, *program], env=environment, check=True)
        found: Found = json.loads(results.read_text(encoding="utf-8"))
        return found


def slowdown(ratios: Iterable[float]) -> str:
    """A cell of the table: of the median and of the mean."""
    return " / ".join(f"{ratio - 1:+.1%}" for ratio in ratios)


def measure(jobs: int, seconds: float) -> str:
    """The table, of `jobs` pairs of jobs."""
    without, watched = [], []
    for number in range(jobs):
        kinds: list[tuple[list[Any], str]] = [(without, "--no-event-log"), (watched, "--dashboard")]
        for kept, flag in kinds if number % 2 == 0 else kinds[::-1]:
            kept.append(launch(seconds, flag))
    rows = []
    for name in _BURSTS:
        off = [statistics.median(job[name]["off"][which] for job in without) for which in (0, 1)]
        cells = [" / ".join(f"{1e6 * seconds:.1f}" for seconds in off) + " µs"]
        for way in ("again", "timeline", "metrics"):
            cells.append(
                slowdown(
                    statistics.median(
                        job[name][way][which] / job[name]["off"][which] for job in without + watched
                    )
                    for which in (0, 1)
                )
            )
        cells.append(
            slowdown(
                statistics.median(job[name]["off"][which] for job in watched) / off[which] for which in (0, 1)
            )
        )
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(
        [
            circumstances(f"2 ranks, {jobs} pairs of jobs, median / mean") + "\n",
            "| | nothing watched | nothing, again | timeline | metrics | dashboard |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> None:
    """Entry point, of the ranks, too."""
    parser = new_parser("What watching a job costs")
    parser.add_argument("--jobs", type=positive, default=_JOBS, help="pairs of jobs")
    parser.add_argument("--seconds", type=above_zero, default=_SECONDS, help="for each piece of work")
    options = parser.parse_args()
    if _RESULTS in os.environ:
        rank(os.environ[_RESULTS], options.seconds)
        return
    table = measure(options.jobs, options.seconds)
    print(table)
    if options.write:
        SECTION.write(table)


if __name__ == "__main__":
    main()
