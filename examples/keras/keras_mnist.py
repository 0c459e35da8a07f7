"""Trains a small convolutional network on MNIST with Keras 3, on any number of processes:

    horovodrun -np 2 python examples/keras/keras_mnist.py

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
from program import epochs_parser, file_ending_with, share_of, told_errors
from training_report import begin


def build_model() -> Any:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.25),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def run(options: argparse.Namespace) -> None:
    # Horovod: who am I, and who are the others.
    hvd.init()
    keras.utils.set_random_seed(options.seed + hvd.rank())
    report, digits = begin("MNIST with Keras", options)
    # Horovod: each rank has its part of the digits; parts of one size, for equally many steps.
    x, y = share_of(hvd.rank(), hvd.size(), as_floats(digits.x_train), digits.y_train)

    model = build_model()
    # Horovod: all ranks together see a larger batch, which allows for larger steps.
    optimizer = keras.optimizers.Adam(options.lr * hvd.size())
    # Horovod: gradients are averaged over the ranks.
    optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    callbacks = [
        # Horovod: all ranks start with rank 0's weights, and metrics are averaged over the ranks.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        FitReport(report, options.epochs, len(x)),
    ]
    # Horovod: only one rank writes files.
    if hvd.rank() == 0 and options.save:
        callbacks.append(keras.callbacks.ModelCheckpoint(options.save))
    model.fit(
        x,
        y,
        batch_size=options.batch_size,
        epochs=options.epochs,
        validation_data=(as_floats(digits.x_test), digits.y_test),
        callbacks=callbacks,
        verbose=0,  # the report has a bar for rank 0
    )
    report.finish(model.get_weights())
    hvd.shutdown()


def parse() -> argparse.Namespace:
    parser = epochs_parser("MNIST with Keras", epochs=12)
    parser.add_argument(
        "--save",
        metavar="FILE",
        type=file_ending_with(".keras"),
        help="rank 0 saves the model there (.keras)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    with told_errors():
        run(parse())
