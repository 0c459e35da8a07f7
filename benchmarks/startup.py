"""How long a job of many ranks takes to start on this machine, and which part takes how long.

python benchmarks/startup.py                      # 8, 32, 64, 128 and 256 ranks, three times each
python benchmarks/startup.py --ranks 16 --runs 1
python benchmarks/startup.py --write              # and puts the table into docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from section import Section

SECTION = Section(
    "startup",
    """
## Starting many ranks

`python benchmarks/startup.py --write`: `horovodrun -np N` of a program that imports `horovod.numpy` and does
an `init()`, an allreduce and a `shutdown()`, all ranks on this machine. The parts follow each other:
*launcher*, from the command to the start of the first rank's process; *spawn*, until the last one has been
started; *import*, until the last rank calls `init()`; *init*, until it has returned on all ranks;
*allreduce*; *end*, until `horovodrun` has ended. Seconds, the fastest and the slowest of several runs.
""",
)
TARGETS = {128: 1.0, 256: 2.0}  # seconds for init
LIMIT = 600.0  # seconds for a run
PARTS = ("launcher", "spawn", "import", "init", "allreduce", "end")
STEPS = ("interpreter", "import numpy", "import horovod.numpy", "init()")
_RANK = Path(__file__).with_name("startup_rank.py")


@dataclass(frozen=True)
class Run:
    """One start of so many ranks."""

    ranks: int
    parts: tuple[float, ...]  # seconds, as PARTS
    work: tuple[float, ...]  # processor time of a rank, as STEPS: the mean


def measure(ranks: int) -> Run:
    """Starts them once; RuntimeError if that fails."""
    with tempfile.TemporaryDirectory(prefix="hvd-startup-") as directory:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "HOROVOD_START_TIMEOUT": str(LIMIT),
        }
        # As where the package is installed: its modules have been compiled.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(ranks)]
        command += [sys.executable, str(_RANK), directory]
        begun = time.clock_gettime(time.CLOCK_BOOTTIME)
        code = subprocess.run(command, env=environment, timeout=LIMIT, check=False).returncode
        ended = time.clock_gettime(time.CLOCK_BOOTTIME)
        if code != 0:
            raise RuntimeError(f"horovodrun -np {ranks} ended with code {code}")
        notes = [
            [float(word) for word in Path(directory, str(rank)).read_text(encoding="utf-8").split()]
            for rank in range(ranks)
        ]
    spawned = [note[0] for note in notes]
    _, _, *last = [max(column) for column in zip(*(note[1::2] for note in notes), strict=True)]
    stamps = [begun, min(spawned), max(spawned), *last, ended]
    steps = [[after - before for before, after in itertools.pairwise([0.0, *note[2:9:2]])] for note in notes]
    return Run(
        ranks,
        tuple(after - before for before, after in itertools.pairwise(stamps)),
        tuple(statistics.mean(column) for column in zip(*steps, strict=True)),
    )


def line(runs: Sequence[Run]) -> str:
    """A row of the table, about runs of the same number of ranks."""
    ranks = runs[0].ranks
    columns = [*zip(*(run.parts for run in runs), strict=True), tuple(sum(run.parts) for run in runs)]
    cells = [f"{min(column):.2f} to {max(column):.2f}" for column in columns]
    target = TARGETS.get(ranks)
    worst = max(run.parts[PARTS.index("init")] for run in runs)
    verdict = ["", ""] if target is None else [f"≤ {target:g}", "pass" if worst <= target else "MISS"]
    return "| " + " | ".join([str(ranks), str(len(runs)), *cells, *verdict]) + " |"


def main() -> None:
    """Prints the table, and writes it if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="8,32,64,128,256", help="numbers of ranks")
    parser.add_argument("--runs", type=int, default=3, help="of each number")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    arguments = parser.parse_args()
    measure(2)  # compiles what has not been
    load = os.getloadavg()[0]
    headings = ["ranks", "runs", *PARTS, "total", "target of init", "verdict"]
    lines = ["| " + " | ".join(headings) + " |", "| " + " | ".join(["---"] * len(headings)) + " |"]
    print(*lines, sep="\n", flush=True)
    work: list[tuple[float, ...]] = []
    for ranks in map(int, arguments.ranks.split(",")):
        runs = [measure(ranks) for _ in range(arguments.runs)]
        work += [run.work for run in runs]
        lines.append(line(runs))
        print(lines[-1], flush=True)
    least = [min(column) * 1000 for column in zip(*work, strict=True)]
    used = ", ".join(f"{name} {each:.0f} ms" for name, each in zip(STEPS, least, strict=True))
    about = (
        f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}, "
        f"{datetime.date.today()}, load before the start {load:.1f}. Processor time of a rank: {used}."
    )
    print(about)
    if arguments.write:
        SECTION.write("\n".join([textwrap.fill(about, 100), "", *lines]))


if __name__ == "__main__":
    main()
