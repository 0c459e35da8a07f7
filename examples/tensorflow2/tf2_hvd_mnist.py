"""Trains a small convolutional network on MNIST with a loop of its own, on any number of processes:

    horovodrun -np 2 python examples/tensorflow2/tf2_hvd_mnist.py --batch_size=64 --epochs=8
    mpirun -np 8 --verbose python3 ./tf2_hvd_mnist.py --batch_size=256 --epochs=10

What makes it distributed is marked with "Horovod:".
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow reads it

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats, batches
from program import add_checkpoint_dir, epochs_parser, share_of, told_errors
from training_report import Epoch, begin, usable_directory


def build_model() -> Any:
    """Two convolutions and two dense layers."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(16, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dropout(0.25),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )


@tf.function
def train_step(
    data: Any, model: Any, loss_fn: Any, optimizer: Any, first_batch: bool, compress: bool = True
) -> tuple[Any, Any]:
    """One step on this rank's batch; loss and output are this rank's."""
    batch, target = data
    with tf.GradientTape() as tape:
        output = model(batch, training=True)
        loss = loss_fn(target, output)
    # Horovod: the tape returns gradients that are averaged over the ranks, and travel as float16.
    compression = hvd.Compression.fp16 if compress else hvd.Compression.none
    tape = hvd.DistributedGradientTape(tape, compression=compression)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
    # Horovod: all ranks get rank 0's weights. After the first step, as the optimizer has its variables then.
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(optimizer.variables, root_rank=0)
    return loss, output


def random_batches(x: Any, y: Any, batch_size: int, seed: int) -> Callable[[], Iterator[Any]]:
    """Every rank draws from all digits. Horovod: each with a seed of its own, or all would draw the same."""
    generator = np.random.default_rng([seed, hvd.rank()])
    steps = max(len(x) // hvd.size() // batch_size, 1)

    def epoch() -> Iterator[Any]:
        for _ in range(steps):
            chosen = generator.integers(len(x), size=min(batch_size, len(x)))
            yield tf.constant(x[chosen]), tf.constant(y[chosen])

    return epoch


def partition_batches(x: Any, y: Any, batch_size: int, seed: int) -> Callable[[], Iterator[Any]]:
    """Every rank goes through its own part. Horovod: parts of one size, for equally many steps."""
    x, y = share_of(hvd.rank(), hvd.size(), x, y)
    generator = np.random.default_rng([seed, hvd.rank()])
    size = min(batch_size, len(x))

    def epoch() -> Iterator[Any]:
        for images, labels in batches(x, y, size, generator):
            yield tf.constant(images), tf.constant(labels)

    return epoch


def test(model: Any, loss_fn: Any, x: Any, y: Any) -> tuple[float, float]:
    """Loss and accuracy on the test digits, of which each rank takes its share."""
    x, y = x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]
    sums = np.zeros(3)
    for start in range(0, len(x), 500):
        images, labels = tf.constant(x[start : start + 500]), y[start : start + 500]
        output = model(images, training=False)
        right = np.sum(np.argmax(output, axis=1) == labels)
        sums += [float(loss_fn(labels, output)) * len(labels), right, len(labels)]
    # Horovod: sums over all ranks, whose shares may differ by one digit.
    loss, right, count = hvd.allreduce(tf.constant(sums), name="test", op=hvd.Sum).numpy()
    return loss / count, right / count


def run(options: argparse.Namespace) -> None:
    # Horovod: who am I, and who are the others.
    hvd.init()
    tf.keras.utils.set_random_seed(options.seed + hvd.rank())
    # Horovod: one GPU for each rank of a host; without GPUs a fair share of the cores.
    gpus = tf.config.experimental.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.experimental.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(max((os.cpu_count() or 1) // hvd.local_size(), 1))

    report, digits = begin("MNIST with TensorFlow 2", options)
    checkpoints = usable_directory("--checkpoint-dir", options.checkpoint_dir)
    x, y = as_floats(digits.x_train), digits.y_train
    x_test, y_test = as_floats(digits.x_test), digits.y_test

    loading = random_batches if options.data_loading == "random" else partition_batches
    epoch_of_batches = loading(x, y, options.batch_size, options.seed)
    model = build_model()
    loss_fn = tf.losses.SparseCategoricalCrossentropy()
    # Horovod: all ranks together see a larger batch, which allows for larger steps.
    optimizer = tf.optimizers.Adam(options.lr * hvd.size())
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    # Horovod: the ranks share an epoch's digits, so each makes 1 / size of the steps.
    steps = max(len(x) // hvd.size() // options.batch_size, 1)

    first_batch = True
    for epoch in range(1, options.epochs + 1):
        began, sums, images = time.perf_counter(), np.zeros(2), 0
        with report.bar(f"Epoch {epoch}/{options.epochs}", steps) as advance:
            for data in epoch_of_batches():
                loss, output = train_step(data, model, loss_fn, optimizer, first_batch, options.compress)
                first_batch = False
                sums += [float(loss) * len(output), np.sum(np.argmax(output, axis=1) == data[1])]
                images += len(output)
                advance()
        seconds = time.perf_counter() - began
        loss, accuracy = hvd.allreduce(tf.constant(sums / images), name="training").numpy()
        report.epoch(
            Epoch(loss, accuracy, *test(model, loss_fn, x_test, y_test), images * hvd.size(), seconds)
        )
        # Horovod: only one rank writes files.
        if hvd.rank() == 0:
            checkpoint.save(os.path.join(checkpoints, "ckpt"))
    report.finish([variable.numpy() for variable in model.variables])
    hvd.shutdown()


def parse() -> argparse.Namespace:
    parser = epochs_parser("MNIST with TensorFlow 2", epochs=10, batch_size=256)
    parser.add_argument(
        "--compress", action=argparse.BooleanOptionalAction, default=True, help="gradients travel as float16"
    )
    parser.add_argument(
        "--data-loading",
        choices=("partition", "random"),
        default="partition",
        help="each rank has its part of the digits, or draws from all of them",
    )
    add_checkpoint_dir(parser, "checkpoints/tf2_hvd_mnist")
    return parser.parse_args()


if __name__ == "__main__":
    with told_errors(tf.errors.OpError):
        run(parse())
