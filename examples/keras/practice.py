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
from digits_data import as_floats
from keras_report import FitReport
from program import epochs_parser, file_ending_with, share_of, told_errors
from training_report import begin


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
    # Horovod: who am I, and who are the others.
    hvd.init()
    tf.keras.utils.set_random_seed(options.seed + hvd.rank())
    report, digits = begin("Even or odd", options)
    # Horovod: each rank has its part of the digits; parts of one size, for equally many steps.
    x, odd = share_of(hvd.rank(), hvd.size(), as_floats(digits.x_train), digits.y_train % 2)

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
        FitReport(report, options.epochs, len(x)),
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
    hvd.shutdown()


def parse() -> argparse.Namespace:
    parser = epochs_parser("Even or odd digits with tf.keras", epochs=12, batch_size=16, lr=0.01)
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        type=file_ending_with(".h5", ".keras"),
        default="./checkpoint.h5",
        help="rank 0 saves there",
    )
    return parser.parse_args()


if __name__ == "__main__":
    with told_errors():
        run(parse())
