"""Training steps with TensorFlow: Keras fit, tf.distribute's MultiWorkerMirroredStrategy, many gradients.

    python benchmarks/tensorflow_step.py              # starts the processes, prints the tables
    python benchmarks/tensorflow_step.py --write      # and puts them into docs/benchmarks.md

All contenders train in the same two processes, in turns, each round beginning with another one. What is not
distributed runs in all of them at the same time, so that it has the same share of the machine. Run by itself
it starts again under horovodrun.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flags import in_turns_parser
from others import Others
from section import Section
from tensorflow_contenders import GRADIENTS, Contender, Copy, Fit, Loop, ManyGradients, Work

SECTION = Section(
    "tensorflow-step",
    """
## Training with TensorFlow

`python benchmarks/tensorflow_step.py --write`: contenders in turns in the same two processes, which begin
each round together; times are means over the ranks, figures medians over the rounds. *Plain* is the same
training without Horovod, in both processes at the same time but each for itself; *efficiency* is the rate
with Horovod by the plain one: the median of what each round gave, a round being many steps, as one waits
for them. *Plain in step* is what would be left of the plain rate if no rank began a step before all had
ended the one before, worked out from how long the plain steps took: what waiting for each other costs by
itself. *Bound* is that with the time of a copy of the gradients, which all ranks make at once, added to
each step. What `fit` does before its first steps does not count. *Threads* are those of TensorFlow's two
pools in each process. *Loop* is a `tf.function` with a tape of its own, and *MultiWorkerMirrored* the same
one with `tf.distribute` and its collectives.
""",
)
_RANK = "HOROVOD_RANK"
_PORTS, _RESULTS = "TENSORFLOW_STEP_PORTS", "TENSORFLOW_STEP_RESULTS"
PARTS = ("fit", "others")  # jobs of their own
PATIENCE = 3600.0  # seconds; only a job that hangs takes as long


def cnn(keras: Any) -> list[Any]:
    return [
        keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ]


def mlp(keras: Any) -> list[Any]:
    return [*(keras.layers.Dense(2048, activation="relu") for _ in range(3)), keras.layers.Dense(10)]


WORKS = (
    Work("CNN", cnn, (28, 28, 1), 16, efficiency=0.9, ratio=None),
    Work("MLP", mlp, (784,), 8, efficiency=0.95, ratio=1.3),
    # As many as the examples take and more, where the sums are a smaller part of the step.
    Work("MLP", mlp, (784,), 64, efficiency=0.95, ratio=None),
    Work("MLP", mlp, (784,), 256, efficiency=0.95, ratio=None),
    Work("MLP", mlp, (784,), 1024, efficiency=0.95, ratio=None),
)


def timed(contender: Contender, count: int) -> float:
    """Seconds of a step, the mean over the ranks: those that keep in step end together, the others not."""
    import numpy as np

    import horovod.numpy as hvd

    return float(hvd.allreduce(np.array(contender.seconds(count)), op=hvd.Average)) / count


def measured(contenders: Sequence[Contender], rounds: int, seconds: float) -> list[list[float]]:
    """Seconds of a step of each in each round, in turns."""
    for contender in contenders:
        timed(contender, 3)
    counts = [min(each.most_steps, max(10, int(seconds / timed(each, 10)))) for each in contenders]
    times: list[list[float]] = [[] for _ in contenders]
    for number in range(rounds):
        for i in range(len(contenders)):
            which = (i + number) % len(contenders)
            times[which].append(timed(contenders[which], counts[which]))
    return times


def rate(times: Sequence[float]) -> str:
    return f"{1.0 / statistics.median(times):.1f}"


def quotient(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Our rate by theirs: the median of what each round gave, in which the machine was the same for both."""
    return statistics.median(other / mine for mine, other in zip(ours, theirs, strict=True))


def verdict(value: float, target: float | None) -> str:
    return "" if target is None else "pass" if value >= target else "MISS"


def check_same(one: Loop, other: Loop) -> None:
    """AssertionError if the two do not learn the same."""
    import numpy as np

    for loop in (one, other):
        loop.steps(3)
    for mine, others in zip(one.weights, other.weights, strict=True):
        np.testing.assert_allclose(mine.numpy(), others.numpy(), atol=1e-4)


class Rows(NamedTuple):
    """What a job found, as rows of the tables."""

    circumstances: str
    fits: list[list[str]]
    loops: list[list[str]]
    gradients: list[list[str]]


FIT_HEADINGS = (
    *("model", "batch", "threads", "fit plain, steps/s", "fit, steps/s", "efficiency", "target"),
    *("verdict", "plain in step", "bound", "loop plain, steps/s", "loop, steps/s", "efficiency"),
)
LOOP_HEADINGS = (
    *("model", "batch", "threads", "loop, steps/s", "MultiWorkerMirrored, steps/s", "ratio", "target"),
    "verdict",
)
GRADIENT_HEADINGS = (
    *(f"{GRADIENTS} gradients of", "one tf.function", "numpy, async by name", "ratio", "difference each"),
)


def threads_of(options: argparse.Namespace) -> str:
    return str(options.threads) if options.threads else "default"


def tables(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """One, or none where there are no rows."""
    lines = ["| " + " | ".join(row) + " |" for row in (headings, ["---"] * len(headings), *rows)]
    return ["\n".join(lines)] if rows else []


def fit_rows(options: argparse.Namespace) -> list[list[str]]:
    rows = []
    for work in WORKS:
        plain, fit = Fit(work, False), Fit(work, True)
        contenders = [plain, fit, Loop(work, False), Loop(work, True), Copy(plain.model.count_params())]
        plain_fit, own_fit, plain_loop, own_loop, copy = measured(contenders, options.rounds, options.seconds)
        efficiency, in_step = quotient(own_fit, plain_fit), plain.in_step(options.rounds)
        bound = 1.0 / (1.0 / in_step + statistics.median(copy) / statistics.median(plain_fit))
        rows.append(
            [
                *(work.title, str(work.batch), threads_of(options), rate(plain_fit), rate(own_fit)),
                *(f"{efficiency:.0%}", f"≥ {work.efficiency:.0%}", verdict(efficiency, work.efficiency)),
                *(f"{in_step:.0%}", f"{bound:.0%}"),
                *(rate(plain_loop), rate(own_loop), f"{quotient(own_loop, plain_loop):.0%}"),
            ]
        )
    return rows


def loop_rows(strategy: Any, options: argparse.Namespace) -> list[list[str]]:
    rows = []
    for work in WORKS[:2]:
        loop, other = Loop(work, True), Loop(work, False, strategy)
        check_same(loop, other)
        own, mirrored = measured([loop, other], options.rounds, options.seconds)
        ratio = quotient(own, mirrored)
        rows.append(
            [
                *(work.title, str(work.batch), threads_of(options), rate(own), rate(mirrored)),
                *(f"{ratio:.2f}", "" if work.ratio is None else f"≥ {work.ratio:g}"),
                verdict(ratio, work.ratio),
            ]
        )
    return rows


def gradient_rows(options: argparse.Namespace) -> list[list[str]]:
    rows = []
    for elements in (256, 16384):
        contenders = [ManyGradients(elements, True), ManyGradients(elements, False)]
        graph, arrays = (
            1e3 * statistics.median(times) for times in measured(contenders, options.rounds, options.seconds)
        )
        rows.append(
            [
                *(f"{elements * 4 // 1024} KiB", f"{graph:.2f} ms", f"{arrays:.2f} ms"),
                *(f"{graph / arrays:.2f}", f"{(graph - arrays) / GRADIENTS * 1e3:+.1f} µs"),
            ]
        )
    return rows


def circumstances(np: int) -> str:
    import keras
    import tensorflow as tf

    return (
        f"{np} ranks on {os.cpu_count()} cores, Linux {platform.release()}, TensorFlow {tf.__version__},\n"
        f"Keras {keras.__version__}, Python {platform.python_version()}, {datetime.date.today()}."
    )


def rank_main(options: argparse.Namespace) -> None:
    """What every rank does."""
    ports = os.environ[_PORTS].split(",")
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]},
            "task": {"type": "worker", "index": int(os.environ[_RANK])},
        }
    )
    import tensorflow as tf

    if options.threads:
        tf.config.threading.set_intra_op_parallelism_threads(options.threads)
        tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    # Before anything else of TensorFlow. Its threads would disturb fit, which has a job of its own.
    strategy = None if options.only == "fit" else tf.distribute.MultiWorkerMirroredStrategy()

    import horovod.tensorflow as hvd

    hvd.init()
    if options.only == "fit":
        rows = Rows(circumstances(hvd.size()), fit_rows(options), [], [])
    else:
        gradients = gradient_rows(options) if options.threads else []
        rows = Rows(circumstances(hvd.size()), [], loop_rows(strategy, options), gradients)
    if hvd.rank() == 0:
        Path(os.environ[_RESULTS]).write_text(json.dumps(rows), encoding="utf-8")
    hvd.shutdown()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody has."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def parse() -> argparse.Namespace:
    description = "Training steps with TensorFlow on two processes, side by side with other ways."
    parser = in_turns_parser(description, rounds=15, seconds=1.0)
    parser.add_argument(
        "--threads", type=int, help="those of TensorFlow's pools, 0 for its default (default: one and that)"
    )
    parser.add_argument("--only", choices=PARTS, help="fit and loops beside plain ones, or the other tables")
    options = parser.parse_args()
    if options.only and options.write and _RESULTS not in os.environ:
        parser.error("--write wants all tables: leave out --only")
    return options


def run_job(options: argparse.Namespace, threads: int, part: str) -> Rows:
    """Starts this program again under horovodrun. CalledProcessError, TimeoutExpired."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        environment = {
            **os.environ,
            _PORTS: ",".join(map(str, free_ports(options.np))),
            _RESULTS: str(results),
            "OMP_NUM_THREADS": str(threads or 1),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1",
            "KERAS_BACKEND": "tensorflow",
        }
        command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(options.np)]
        command += [sys.executable, __file__, *sys.argv[1:], "--only", part, "--threads", str(threads)]
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=True, timeout=PATIENCE)
        return Rows(*json.loads(results.read_text(encoding="utf-8")))


def main() -> int:
    """Entry point."""
    options = parse()
    if _RESULTS in os.environ:
        rank_main(options)
        return 0
    others = Others()
    parts = [options.only] if options.only else PARTS
    jobs = [
        run_job(options, threads, part)
        for threads in ([1, 0] if options.threads is None else [options.threads])
        for part in parts
    ]
    text = "\n\n".join(
        [
            f"{jobs[0].circumstances}\nOther programs took {others.share():.0%} of the processors' time.",
            *tables(FIT_HEADINGS, [row for job in jobs for row in job.fits]),
            *tables(LOOP_HEADINGS, [row for job in jobs for row in job.loops]),
            *tables(GRADIENT_HEADINGS, [row for job in jobs for row in job.gradients]),
        ]
    )
    print(text, flush=True)
    if options.write:
        SECTION.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
