"""MNIST with Keras 3 and everything that helps many processes: warm-up, a schedule, averages, augmentation:

    horovodrun -np 2 python examples/keras/keras_mnist_advanced.py

What makes it distributed is marked with "Horovod:".
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow reads it

import keras

import horovod.keras as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats
from keras_report import FitReport
from program import at_least_one, epochs_parser, file_ending_with, share_of, told_errors
from training_report import begin


def build_model() -> Any:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            # Moved, turned and scaled a little, at random and only while training; each rank in its own way.
            keras.layers.RandomTranslation(0.08, 0.08, fill_mode="constant"),
            keras.layers.RandomRotation(0.03, fill_mode="constant"),
            keras.layers.RandomZoom(0.08, fill_mode="constant"),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.25),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dropout(0.25),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def run(options: argparse.Namespace) -> None:
    # Horovod: who am I, and who are the others.
    hvd.init()
    keras.utils.set_random_seed(options.seed + hvd.rank())
    report, digits = begin("MNIST with Keras, advanced", options)
    # Horovod: each rank has its part of the digits; parts of one size, for equally many steps.
    x, y = share_of(hvd.rank(), hvd.size(), as_floats(digits.x_train), digits.y_train)

    # Horovod: all ranks together see a larger batch, which allows for larger steps.
    rate = options.lr * hvd.size()
    model = build_model()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9))
    model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    warm_up = min(options.warmup_epochs, options.epochs)
    decay = max((options.epochs - warm_up) // 2, 1)
    callbacks = [
        # Horovod: all ranks start with rank 0's weights, and metrics are averaged over the ranks.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        # Horovod: the rate grows from that of one process to that of all, then falls in two steps.
        hvd.callbacks.LearningRateWarmupCallback(
            initial_lr=rate, warmup_epochs=warm_up, verbose=int(hvd.rank() == 0)
        ),
        hvd.callbacks.LearningRateScheduleCallback(
            initial_lr=rate, multiplier=1.0, start_epoch=warm_up, end_epoch=warm_up + decay
        ),
        hvd.callbacks.LearningRateScheduleCallback(
            initial_lr=rate, multiplier=lambda epoch: 0.1, start_epoch=warm_up + decay
        ),
        FitReport(report, options.epochs, len(x)),
    ]
    # Horovod: only one rank writes files.
    if hvd.rank() == 0 and options.checkpoint:
        callbacks.append(keras.callbacks.ModelCheckpoint(options.checkpoint, save_best_only=True))
    model.fit(
        x,
        y,
        batch_size=options.batch_size,
        epochs=options.epochs,
        validation_data=(as_floats(digits.x_test), digits.y_test),
        callbacks=callbacks,
        verbose=0,  # the report has a bar for rank 0
    )
    report.finish(variable.numpy() for variable in model.trainable_variables)
    hvd.shutdown()


def parse() -> argparse.Namespace:
    parser = epochs_parser("MNIST with warm-up and augmentation", epochs=24, lr=0.02)
    parser.add_argument("--warmup-epochs", type=at_least_one, default=3, help="until the full rate")
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        type=file_ending_with(".keras"),
        help="rank 0 saves the best model there (.keras)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    with told_errors():
        run(parse())
