"""Trains on MNIST with Keras's fit() while processes come and go:

    horovodrun -np 2 --min-np 1 --host-discovery-script examples/elastic/discover_hosts.sh \
        python examples/elastic/keras_mnist_elastic.py

Edit the hosts in the script, or kill a process, and watch. What makes it elastic is marked with "Elastic:".
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow reads it

import keras

import horovod.keras as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats, load_digits
from keras_layers import convolutions
from program import elastic_parser


def main() -> None:
    given = elastic_parser("MNIST with Keras, elastic", lr=0.001).parse_args()
    digits = load_digits(given.data_dir, given.limit)
    images, labels = as_floats(digits.x_train), digits.y_train
    keras.utils.set_random_seed(given.seed)
    model = keras.Sequential(
        [keras.Input((28, 28, 1)), *convolutions(16, 32), keras.layers.Dense(10, activation="softmax")]
    )
    # Elastic: what takes long comes before this. A new process waits here until the others let it in.
    hvd.init()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(given.lr * hvd.size()))
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

    # Elastic: goes on after a failure from the last commit, and with other processes after a change.
    @hvd.elastic.run
    def train(state: Any) -> None:
        print(
            f"rank {hvd.rank()} of {hvd.size()} starts in epoch {state.epoch}, batch {state.batch}",
            flush=True,
        )
        if state.epoch == given.epochs:
            return
        share = len(images) // hvd.size()
        model.fit(
            images[hvd.rank() * share :][:share],
            labels[hvd.rank() * share :][:share],
            batch_size=given.batch_size,
            epochs=given.epochs - state.epoch,
            verbose=2 if hvd.rank() == 0 else 0,
            callbacks=[
                # Elastic: these keep the state up to date, in any order.
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.CommitStateCallback(state, batches_per_commit=10),
            ],
        )

    # Elastic: all that must be the same in a process that joins.
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    # Elastic: called when the number of processes has changed.
    state.register_reset_callbacks([lambda: model.optimizer.learning_rate.assign(given.lr * hvd.size())])
    train(state)
    right = model.evaluate(as_floats(digits.x_test), digits.y_test, verbose=0)[1]
    if hvd.rank() == 0:
        print(f"accuracy {right:.2%} with {hvd.size()} processes", flush=True)


if __name__ == "__main__":
    main()
