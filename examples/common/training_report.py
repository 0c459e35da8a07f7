"""What an example tells: a bar and lines on rank 0, a closing summary and, if wanted, pictures."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from digits_data import Digits, load_digits
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import horovod.numpy as hvd


@dataclass(frozen=True)
class Epoch:
    """What an epoch brought. `images` are those of all ranks, `seconds` those of training alone."""

    loss: float
    accuracy: float
    test_loss: float
    test_accuracy: float
    images: int
    seconds: float

    @property
    def speed(self) -> float:
        return self.images / max(self.seconds, 1e-9)


def usable_directory(flag: str, name: str) -> Path:
    """Makes the directory on rank 0; exits with a message if that cannot be."""
    path = Path(name)
    if hvd.rank() == 0:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            sys.exit(f"{flag} {name}: {error.strerror}")
    return path


class Report:
    """Create it after hvd.init(). Only rank 0 prints and writes."""

    def __init__(self, title: str, summary_dir: str | None = None) -> None:
        self._title = title
        self._epochs: list[Epoch] = []
        self._started = time.perf_counter()
        # Open MPI's mpirun gives its ranks a terminal even if all goes to a file, which no bar should fill.
        terminal = False if "OMPI_COMM_WORLD_RANK" in os.environ else None
        self._console = Console(highlight=False, quiet=hvd.rank() != 0, force_terminal=terminal)
        self._directory: Path | None = None
        if summary_dir is not None:
            if importlib.util.find_spec("matplotlib") is None:
                sys.exit(
                    "--summary-dir draws with matplotlib, which is not installed: pip install matplotlib"
                )
            self._directory = usable_directory("--summary-dir", summary_dir)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def bar(self, title: str, total: int) -> Iterator[Callable[[], None]]:
        """A progress bar; the value is a function to be called after each step."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console, disable=hvd.rank() != 0) as progress:
            task = progress.add_task(title, total=total)
            yield lambda: progress.advance(task)

    def epoch(self, epoch: Epoch) -> None:
        """Adds an epoch, whose figures are the same on all ranks."""
        self._epochs.append(epoch)
        self.say(
            f"Epoch {len(self._epochs)}: loss {epoch.loss:.4f}, accuracy {epoch.accuracy:.2%}; "
            f"test loss {epoch.test_loss:.4f}, test accuracy {epoch.test_accuracy:.2%}; "
            f"{epoch.speed:,.0f} images/s"
        )

    def finish(self, weights: Iterable[NDArray[np.generic]]) -> None:
        """The summary. Exits with a message if the ranks' weights differ or a file can't be written."""
        agreed = same_on_all_ranks(weights)
        last = self._epochs[-1]
        seconds = time.perf_counter() - self._started
        steady = self._epochs[1:] or self._epochs  # the first epoch also compiles
        speed = sum(e.images for e in steady) / max(sum(e.seconds for e in steady), 1e-9)
        self.say("")
        self.say(f"{self._title}, {processes()}")
        self.say(f"  Test accuracy  {last.test_accuracy:.2%} after {len(self._epochs)} epochs")
        self.say(f"  Time           {seconds:.1f} s")
        self.say(f"  Speed          {speed:,.0f} images/s in training")
        self.say(f"  Weights        {agreed}, the same bits on {_ranks(hvd.size())}")
        if self._directory is not None and hvd.rank() == 0:
            try:
                page = self._write(self._directory, seconds, speed)
            except OSError as error:
                sys.exit(f"--summary-dir {self._directory}: {error.strerror or error}")
            self.say(f"  Report         {page}")

    def _write(self, directory: Path, seconds: float, speed: float) -> Path:
        from training_charts import Chart, Line, write_page

        epochs = self._epochs
        last = epochs[-1]
        (directory / "summary.json").write_text(
            json.dumps(
                {
                    "title": self._title,
                    "processes": hvd.size(),
                    "test_accuracy": last.test_accuracy,
                    "seconds": seconds,
                    "images_per_second": speed,
                    "epochs": [asdict(epoch) for epoch in epochs],
                },
                indent=1,
            )
        )
        numbers = [float(number) for number in range(1, len(epochs) + 1)]
        charts = [
            Chart(
                "loss",
                "Loss",
                numbers,
                [
                    Line("training", [e.loss for e in epochs]),
                    Line("test", [e.test_loss for e in epochs], second=True),
                ],
            ),
            Chart(
                "accuracy",
                "Accuracy, %",
                numbers,
                [
                    Line("training", [100 * e.accuracy for e in epochs]),
                    Line("test", [100 * e.test_accuracy for e in epochs], second=True),
                ],
            ),
            Chart(
                "images_per_second",
                "Images per second",
                numbers,
                [Line("all ranks", [e.speed for e in epochs])],
                from_zero=True,
            ),
        ]
        tiles = [
            ("Test accuracy", f"{last.test_accuracy:.1%}"),
            ("Time", f"{seconds:.1f} s"),
            ("Images per second", f"{speed:,.0f}"),
            ("Processes", str(hvd.size())),
        ]
        head = ["Epoch", "Loss", "Accuracy", "Test loss", "Test accuracy", "Images/s"]
        rows = [
            [
                str(number),
                f"{e.loss:.4f}",
                f"{e.accuracy:.2%}",
                f"{e.test_loss:.4f}",
                f"{e.test_accuracy:.2%}",
                f"{e.speed:,.0f}",
            ]
            for number, e in enumerate(epochs, 1)
        ]
        return write_page(directory, self._title, tiles, charts, head, rows)


def begin(title: str, options: Namespace) -> tuple[Report, Digits]:
    """The report of a training and the digits that its flags ask for, after saying which these are."""
    report = Report(title, getattr(options, "summary_dir", None))
    digits = load_digits(options.data_dir, options.limit)
    report.say(f"{digits.source}; {processes()}")
    return report, digits


def same_on_all_ranks(weights: Iterable[NDArray[np.generic]]) -> str:
    """A hash of every bit of the weights; exits with a message if it is not the same on all ranks."""
    mine = hashlib.sha256(b"".join(np.asarray(array).tobytes() for array in weights)).hexdigest()[:16]
    rows = hvd.allgather(np.frombuffer(mine.encode(), np.uint8).reshape(1, -1), name="weights agree")
    found = [bytes(row).decode() for row in rows]
    if len(set(found)) > 1:
        sys.exit(f"The ranks' weights differ: {found}. Was something trained without Horovod's optimizer?")
    return mine


def processes() -> str:
    return "1 process" if hvd.size() == 1 else f"{hvd.size()} processes"


def _ranks(size: int) -> str:
    return "the only rank" if size == 1 else "both ranks" if size == 2 else f"all {size} ranks"
