"""What tensorflow_step.py compares: training with Keras and in loops, copies, and many gradients."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

GRADIENTS = 200
MOST_STEPS, MOST_SAMPLES = 1000, 100_000  # in a round
UNCOUNTED = 5  # steps of each fit()


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

    most_steps = MOST_STEPS

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
        self.most_steps = min(MOST_STEPS, MOST_SAMPLES // work.batch)  # whose samples are in memory
        self.laps: list[Any] = []  # of each call of seconds(): those of its steps
        self.x, self.y = data_of(work, UNCOUNTED + self.most_steps, hvd.rank())
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


class Copy(Contender):
    """Copies as many bytes as the gradients of a model have."""

    def __init__(self, elements: int) -> None:
        import numpy as np

        self.source, self.target = np.ones(elements, np.float32), np.ones(elements, np.float32)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.target[:] = self.source


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
