"""Training steps with TensorFlow: Keras fit, tf.distribute's MultiWorkerMirroredStrategy, many gradients.

    python benchmarks/tensorflow_step.py              # starts the processes, prints the tables
    python benchmarks/tensorflow_step.py --write      # and puts them into docs/benchmarks.md

All contenders train in the same two processes, in turns, each round beginning with another one, with one
thread a rank. A round's time is that of the slowest rank. Run by itself it starts again under horovodrun.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from section import Section

SECTION = Section(
    "tensorflow-step",
    """
## Training with TensorFlow

`python benchmarks/tensorflow_step.py --write`: two ranks with one thread each; contenders in turns in the
same processes; a round's time is that of the slowest rank; medians over the rounds. *Alone* is the same `fit`
on one rank without Horovod while the other one rests; *efficiency* is the rate of each of two ranks by that.
*Loop* is a `tf.function` with a tape of its own, and *MultiWorkerMirrored* the same one with `tf.distribute`
and its collectives.
""",
)
_RANK = "HOROVOD_RANK"
_PORTS = "TENSORFLOW_STEP_PORTS"
GRADIENTS = 200
MOST_STEPS = 1000  # in a round


@dataclass(frozen=True)
class Work:
    """A model with its input, and how much faster than MultiWorkerMirroredStrategy we want to be."""

    title: str
    layers: Callable[[Any], list[Any]]
    shape: tuple[int, ...]
    batch: int
    target: float | None


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
    Work("CNN", cnn, (28, 28, 1), 16, target=None),
    Work("MLP", mlp, (784,), 8, target=1.3),
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


class Fit:
    """model.fit(), distributed or on one rank alone."""

    def __init__(self, work: Work, distributed: bool) -> None:
        import keras

        import horovod.keras as hvd

        self.batch, self.rests = work.batch, not distributed and hvd.rank() > 0
        self.x, self.y = data_of(work, MOST_STEPS, hvd.rank())
        optimizer = keras.optimizers.SGD(0.001)
        self.model = model_of(work)
        self.model.compile(
            hvd.DistributedOptimizer(optimizer) if distributed else optimizer,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )

    def steps(self, count: int) -> None:
        rows = count * self.batch
        if not self.rests:
            self.model.fit(self.x[:rows], self.y[:rows], self.batch, verbose=0, shuffle=False)


class Loop:
    """A tf.function of one's own with a tape, the way that MultiWorkerMirroredStrategy is compared with."""

    def __init__(self, work: Work, strategy: Any = None) -> None:
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
            if strategy is None:
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


class ManyGradients:
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


def timed(contender: Any, count: int) -> float:
    """Seconds that `count` steps take on the slowest rank."""
    import numpy as np

    import horovod.numpy as hvd

    hvd.barrier()
    started = time.perf_counter()
    contender.steps(count)
    elapsed = np.array(time.perf_counter() - started)
    return float(hvd.allreduce(elapsed, op=hvd.Max))


def rates(contenders: Sequence[Any], rounds: int, seconds: float) -> list[float]:
    """Steps per second of each, measured in turns."""
    for contender in contenders:
        timed(contender, 3)
    # Enough that the start of a fit() does not count.
    counts = [
        min(MOST_STEPS, max(10, int(seconds / (timed(contender, 10) / 10)))) for contender in contenders
    ]
    times: list[list[float]] = [[] for _ in contenders]
    for number in range(rounds):
        for i in range(len(contenders)):
            which = (i + number) % len(contenders)
            times[which].append(timed(contenders[which], counts[which]) / counts[which])
    return [1.0 / statistics.median(each) for each in times]


def check_same(one: Loop, other: Loop) -> None:
    """AssertionError if the two do not learn the same."""
    import numpy as np

    for loop in (one, other):
        loop.steps(3)
    for mine, others in zip(one.weights, other.weights, strict=True):
        np.testing.assert_allclose(mine.numpy(), others.numpy(), atol=1e-4)


def model_table(strategy: Any, rounds: int, seconds: float) -> str:
    rows = [
        "| model | parameters | fit, steps/s | alone, steps/s | efficiency | loop, steps/s "
        "| MultiWorkerMirrored, steps/s | ratio | target | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for work in WORKS:
        loops = Loop(work), Loop(work, strategy)
        check_same(*loops)
        contenders = [Fit(work, True), Fit(work, False), *loops]
        fit, alone, loop, mirrored = rates(contenders, rounds, seconds)
        ratio = loop / mirrored
        target = "" if work.target is None else f"≥ {work.target:g}"
        verdict = "" if work.target is None else ("pass" if ratio >= work.target else "MISS")
        rows.append(
            f"| {work.title} | {contenders[0].model.count_params():,} | {fit:.1f} | {alone:.1f} "
            f"| {fit / alone:.0%} | {loop:.1f} | {mirrored:.1f} | {ratio:.2f} | {target} | {verdict} |"
        )
    return "\n".join(rows)


def gradient_table(rounds: int, seconds: float) -> str:
    rows = [
        f"| {GRADIENTS} gradients of | one tf.function | numpy, async by name | ratio | difference each |",
        "| --- | --- | --- | --- | --- |",
    ]
    for elements in (256, 16384):
        contenders = [ManyGradients(elements, True), ManyGradients(elements, False)]
        graph, arrays = (1e3 / rate for rate in rates(contenders, rounds, seconds))
        rows.append(
            f"| {elements * 4 // 1024} KiB | {graph:.2f} ms | {arrays:.2f} ms | {graph / arrays:.2f} "
            f"| {(graph - arrays) / GRADIENTS * 1e3:+.1f} µs |"
        )
    return "\n".join(rows)


def circumstances(np: int) -> str:
    import keras
    import tensorflow as tf

    return (
        f"{np} ranks on {os.cpu_count()} cores, Linux {platform.release()}, TensorFlow {tf.__version__}, "
        f"Keras {keras.__version__}, Python {platform.python_version()}, {datetime.date.today()}, load "
        f"{os.getloadavg()[0]:.1f}."
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

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before anything else of TensorFlow

    import horovod.tensorflow as hvd

    hvd.init()
    load = circumstances(hvd.size())
    models = model_table(strategy, options.rounds, options.seconds)
    gradients = gradient_table(options.rounds, options.seconds)
    if hvd.rank() == 0:
        text = f"{load}\n\n{models}\n\n{gradients}"
        print(text, flush=True)
        if options.write:
            SECTION.write(text)
    hvd.shutdown()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody has."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Training steps with TensorFlow on two processes, side by side with other ways.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--np", type=int, default=2, help="number of processes")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a round takes, about")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    if options.np < 1 or options.rounds < 1 or options.seconds <= 0:
        parser.error("--np and --rounds must be at least 1, --seconds above 0")
    return options


def main() -> int:
    """Entry point; starts itself again under horovodrun."""
    options = parse()
    if _PORTS in os.environ:
        rank_main(options)
        return 0
    environment = {
        **os.environ,
        _PORTS: ",".join(map(str, free_ports(options.np))),
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "KERAS_BACKEND": "tensorflow",
    }
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(options.np)]
    command += [sys.executable, __file__, *sys.argv[1:]]
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
