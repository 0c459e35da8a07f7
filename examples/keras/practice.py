"""Practice: is a digit even or odd? tf.keras on any number of processes (docs/practice.md):

    horovodrun -np 2 python examples/keras/practice.py

What makes it distributed is marked with "Horovod:".
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow reads it

import tensorflow as tf
from tensorflow.keras import layers, optimizers

import horovod.tensorflow.keras as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats, load_digits
from keras_report import FitReport
from training_report import Report, above_zero, add_common_flags, at_least_one, processes


def build_model() -> Any:
    return tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(1, activation="sigmoid"),
        ]
    )


def run(options: argparse.Namespace) -> None:
    tf.keras.utils.set_random_seed(options.seed + hvd.rank())
    report = Report("Even or odd", options.summary_dir)
    digits = load_digits(options.data_dir, options.limit)
    report.say(f"{digits.source}; {processes()}")
    # Horovod: each rank has its part of the digits; parts of one size, for equally many steps.
    share = len(digits.x_train) // hvd.size()
    if share == 0:
        sys.exit(f"{len(digits.x_train)} digits are too few for {hvd.size()} processes: raise --limit")
    mine = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
    x, odd = as_floats(digits.x_train[mine]), digits.y_train[mine] % 2

    model = build_model()
    # Horovod: all ranks together see a larger batch; gradients are averaged over the ranks.
    opt = optimizers.SGD(options.lr * hvd.size())
    opt = hvd.DistributedOptimizer(opt)
    model.compile(loss="binary_crossentropy", optimizer=opt, metrics=["accuracy"])
    callbacks = [
        # Horovod: the same start on all ranks, averaged metrics, and a rate that grows during three epochs.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=3, verbose=1),
        FitReport(report, options.epochs, share),
    ]
    # Horovod: only one rank writes files.
    if hvd.rank() == 0:
        callbacks.append(
            tf.keras.callbacks.ModelCheckpoint(
                options.checkpoint, save_best_only=True, save_weights_only=False
            )
        )
    model.fit(
        x,
        odd,
        batch_size=options.batch_size,
        epochs=options.epochs,
        validation_data=(as_floats(digits.x_test), digits.y_test % 2),
        callbacks=callbacks,
        verbose=0,  # the report has a bar for rank 0
    )
    report.finish(model.get_weights())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Even or odd digits with tf.keras: horovodrun -np 2 python practice.py",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--epochs", type=at_least_one, default=12, help="passes over the data")
    parser.add_argument("--batch-size", type=at_least_one, default=16, help="digits per step and process")
    parser.add_argument("--lr", type=above_zero, default=0.01, help="learning rate of one process")
    parser.add_argument("--seed", type=int, default=0, help="for start weights and order")
    parser.add_argument("--checkpoint", metavar="FILE", default="./checkpoint.h5", help="rank 0 saves there")
    add_common_flags(parser)
    options = parser.parse_args()
    if not options.checkpoint.endswith((".h5", ".keras")):
        parser.error(f"--checkpoint {options.checkpoint}: the name must end with .h5 or .keras")
    return options


def main() -> None:
    """Entry point."""
    options = parse()
    # Horovod: who am I, and who are the others.
    hvd.init()
    try:
        run(options)
    except OSError as error:
        sys.exit(f"rank {hvd.rank()}: {error}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
