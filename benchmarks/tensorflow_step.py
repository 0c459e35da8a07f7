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
import itertools
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from flags import in_turns_parser
from others import Others
from section import Section

SECTION = Section(
    "tensorflow-step",
    """
## Training with TensorFlow

`python benchmarks/tensorflow_step.py --write`: contenders in turns in the same two processes, which begin
each round together; times are means over the ranks, figures medians over the rounds. *Plain* is the same
training without Horovod, in both processes at the same time but each for itself; *efficiency* is the rate
with Horovod by the plain one: the median of what each round gave, a round being many steps, as one waits for
them. *Plain in step* is what would be left of the plain rate if no rank began a step before all had ended the
one before, worked out from how long the plain steps took: what waiting for each other costs by itself. What
`fit` does before its first steps does not count. *Threads* are those of TensorFlow's two pools in each
process. *Loop* is a `tf.function` with a tape of its own, and *MultiWorkerMirrored* the same one with
`tf.distribute` and its collectives.
""",
)
_RANK = "HOROVOD_RANK"
_PORTS, _RESULTS = "TENSORFLOW_STEP_PORTS", "TENSORFLOW_STEP_RESULTS"
GRADIENTS = 200
MOST_STEPS = 1000  # in a round
UNCOUNTED = 5  # steps of each fit()
PATIENCE = 3600.0  # seconds; only a job that hangs takes as long


@dataclass(frozen=True)
class Work:
    """A model with its input, and what we want of it: fit()'s efficiency, and a loop's rate by that of
    MultiWorkerMirroredStrategy.
    """

    title: str
    layers: Callable[[Any], list[Any]]
    shape: tuple[int, ...]
    batch: int
    efficiency: float
    ratio: float | None


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
    # As many as the examples take, where the sums are a smaller part of the step.
    Work("MLP", mlp, (784,), 64, efficiency=0.95, ratio=None),
)


def model_of(work: Work) -> Any:
    """The same on all ranks."""
    import keras

    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input(work.shape), *work.layers(keras)])


def data_of(work: Work, steps: int, rank: int) -> tuple[Any, Any]:
    import numpy as np

    random = np.random.default_rng(rank)
    count = work.batch * steps
    return random.normal(size=(count, *work.shape)).astype("float32"), random.integers(0, 10, count)


class Contender:
    """What can be measured: something that is done step by step."""

    def steps(self, count: int) -> None:
        """Does it."""
        raise NotImplementedError

    def seconds(self, count: int) -> float:
        """How long it takes on this rank, from when all are there."""
        import horovod.numpy as hvd

        hvd.barrier()
        started = time.perf_counter()
        self.steps(count)
        return time.perf_counter() - started


class Fit(Contender):
    """model.fit(), distributed or each rank by itself."""

    def __init__(self, work: Work, distributed: bool) -> None:
        import keras

        import horovod.keras as hvd

        self.batch = work.batch
        self.laps: list[Any] = []  # of each call of seconds(): those of its steps
        self.x, self.y = data_of(work, UNCOUNTED + MOST_STEPS, hvd.rank())
        optimizer = keras.optimizers.SGD(0.001)
        self.model = model_of(work)
        self.model.compile(
            hvd.DistributedOptimizer(optimizer) if distributed else optimizer,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )

    def seconds(self, count: int) -> float:
        import keras

        import horovod.numpy as hvd

        times: list[float] = []

        def after(step: int, logs: Any) -> None:
            if step == UNCOUNTED - 1:
                hvd.barrier()
            if UNCOUNTED - 1 <= step < UNCOUNTED + count:
                times.append(time.perf_counter())

        rows = (UNCOUNTED + count) * self.batch
        clock = keras.callbacks.LambdaCallback(on_train_batch_end=after)
        self.model.fit(self.x[:rows], self.y[:rows], self.batch, verbose=0, shuffle=False, callbacks=[clock])
        self.laps.append([end - start for start, end in itertools.pairwise(times)])
        return times[-1] - times[0]

    def in_step(self, rounds: int) -> float:
        """What would be left of the rate if a step took as long as on the rank where it takes longest.

        The median of the last rounds.
        """
        import numpy as np

        import horovod.numpy as hvd

        by_rank = [hvd.allgather(np.array(laps)[np.newaxis]) for laps in self.laps[-rounds:]]
        return statistics.median(float(laps.mean() / laps.max(axis=0).mean()) for laps in by_rank)


class Loop(Contender):
    """A tf.function of one's own with a tape, the way that MultiWorkerMirroredStrategy is compared with."""

    def __init__(self, work: Work, distributed: bool, strategy: Any = None) -> None:
        import keras
        import tensorflow as tf

        import horovod.tensorflow as hvd

        self.model = model_of(work)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        rate = 0.001
        x, y = (tf.constant(value) for value in data_of(work, 1, hvd.rank()))
        # Weights of its own, so that both loops do the same with variables of their kind.
        start = [variable.numpy() for variable in self.model.trainable_variables]
        if strategy is not None:
            with strategy.scope():
                self.weights = [tf.Variable(value) for value in start]
        else:
            self.weights = [tf.Variable(value) for value in start]

        def gradients() -> tuple[Any, list[Any]]:
            with tf.GradientTape() as tape:
                outputs, _ = self.model.stateless_call(
                    [tf.convert_to_tensor(weight) for weight in self.weights], [], x, training=True
                )
                loss = loss_of(y, outputs)
            if distributed:
                tape = hvd.DistributedGradientTape(tape)
            return loss, tape.gradient(loss, self.weights)

        def replica_step() -> Any:
            loss, values = gradients()
            if strategy is not None:
                # Keras has divided the loss by the number of replicas.
                values = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, values)
            for weight, value in zip(self.weights, values, strict=True):
                weight.assign_sub(rate * value)
            return loss

        @tf.function
        def step() -> Any:
            return replica_step() if strategy is None else strategy.run(replica_step)

        self.step = step

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()


class ManyGradients(Contender):
    """200 tensors reduced in one tf.function, or through the numpy API, asynchronously by name."""

    def __init__(self, elements: int, tensorflow: bool) -> None:
        import numpy as np
        import tensorflow as tf

        import horovod.numpy as arrays
        import horovod.tensorflow as hvd

        values = [np.full(elements, float(i), np.float32) for i in range(GRADIENTS)]
        if tensorflow:
            tensors = [tf.constant(value) for value in values]

            @tf.function
            def reduce() -> list[Any]:
                return [
                    hvd.allreduce(tensor, op=hvd.Sum, name=f"gradient_{i}")
                    for i, tensor in enumerate(tensors)
                ]

            self.reduce: Callable[[], Any] = reduce
        else:

            def reduce_arrays() -> list[Any]:
                handles = [
                    arrays.allreduce_async(value, name=f"array_{i}", op=arrays.Sum)
                    for i, value in enumerate(values)
                ]
                return [arrays.synchronize(handle) for handle in handles]

            self.reduce = reduce_arrays
        results = self.reduce()
        assert float(results[3][0]) == 3.0 * hvd.size(), "a wrong sum"

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.reduce()


def timed(contender: Contender, count: int) -> float:
    """Seconds of a step, the mean over the ranks: those that keep in step end together, the others not."""
    import numpy as np

    import horovod.numpy as hvd

    return float(hvd.allreduce(np.array(contender.seconds(count)), op=hvd.Average)) / count


def measured(contenders: Sequence[Contender], rounds: int, seconds: float) -> list[list[float]]:
    """Seconds of a step of each in each round, in turns."""
    for contender in contenders:
        timed(contender, 3)
    counts = [min(MOST_STEPS, max(10, int(seconds / timed(contender, 10)))) for contender in contenders]
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
    *("verdict", "plain in step", "loop plain, steps/s", "loop, steps/s", "efficiency"),
)
LOOP_HEADINGS = (
    *("model", "batch", "threads", "loop, steps/s", "MultiWorkerMirrored, steps/s", "ratio", "target"),
    "verdict",
)
GRADIENT_HEADINGS = (
    *(f"{GRADIENTS} gradients of", "one tf.function", "numpy, async by name", "ratio", "difference each"),
)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (headings, ["---"] * len(headings), *rows))


def model_rows(strategy: Any, options: argparse.Namespace) -> tuple[list[list[str]], list[list[str]]]:
    fits, loops = [], []
    threads = str(options.threads) if options.threads else "default"
    for work in WORKS:
        plain, fit, loop = Fit(work, False), Fit(work, True), Loop(work, True)
        contenders: list[Contender] = [plain, fit, Loop(work, False), loop]
        if not options.fit:
            other = Loop(work, False, strategy)
            check_same(loop, other)
            contenders.append(other)
        plain_fit, own_fit, plain_loop, own_loop, *mirrored = measured(
            contenders, options.rounds, options.seconds
        )
        efficiency = quotient(own_fit, plain_fit)
        fits.append(
            [
                *(work.title, str(work.batch), threads, rate(plain_fit), rate(own_fit)),
                *(f"{efficiency:.0%}", f"≥ {work.efficiency:.0%}", verdict(efficiency, work.efficiency)),
                f"{plain.in_step(options.rounds):.0%}",
                *(rate(plain_loop), rate(own_loop), f"{quotient(own_loop, plain_loop):.0%}"),
            ]
        )
        target = "" if work.ratio is None else f"≥ {work.ratio:g}"
        for times in mirrored:
            ratio = quotient(own_loop, times)
            loops.append(
                [
                    *(work.title, str(work.batch), threads, rate(own_loop), rate(times), f"{ratio:.2f}"),
                    *(target, verdict(ratio, work.ratio)),
                ]
            )
    return fits, loops


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
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before anything else of TensorFlow

    import horovod.tensorflow as hvd

    hvd.init()
    load = circumstances(hvd.size())
    gradients = options.threads and not options.fit
    rows = Rows(load, *model_rows(strategy, options), gradient_rows(options) if gradients else [])
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
    parser.add_argument("--fit", action="store_true", help="only fit and loops beside plain ones; quicker")
    options = parser.parse_args()
    if options.fit and options.write:
        parser.error("--write wants all tables: leave out --fit")
    return options


def run_job(options: argparse.Namespace, threads: int) -> Rows:
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
        command += [sys.executable, __file__, *sys.argv[1:], "--threads", str(threads)]
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=True, timeout=PATIENCE)
        return Rows(*json.loads(results.read_text(encoding="utf-8")))


def main() -> int:
    """Entry point."""
    options = parse()
    if _RESULTS in os.environ:
        rank_main(options)
        return 0
    others = Others()
    jobs = [
        run_job(options, threads) for threads in ([1, 0] if options.threads is None else [options.threads])
    ]
    text = "\n\n".join(
        [
            f"{jobs[0].circumstances}\nOther programs took {others.share():.0%} of the processors' time.",
            table(FIT_HEADINGS, [row for job in jobs for row in job.fits]),
            table(LOOP_HEADINGS, [row for job in jobs for row in job.loops]),
            table(GRADIENT_HEADINGS, [row for job in jobs for row in job.gradients]),
        ]
    )
    print(text, flush=True)
    if options.write:
        SECTION.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
