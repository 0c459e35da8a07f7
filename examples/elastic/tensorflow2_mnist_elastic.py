"""Trains on MNIST with TensorFlow 2, in a loop of its own, while processes come and go:

    horovodrun -np 2 --min-np 1 --host-discovery-script examples/elastic/discover_hosts.sh \
        python examples/elastic/tensorflow2_mnist_elastic.py

Edit the hosts in the script, or kill a process, and watch. What makes it elastic is marked with "Elastic:".
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow reads it

import keras
import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats, load_digits
from keras_layers import convolutions
from program import elastic_parser


def main() -> None:
    given = elastic_parser("MNIST with TensorFlow 2, elastic", lr=0.001).parse_args()
    digits = load_digits(given.data_dir, given.limit)
    images, labels = as_floats(digits.x_train), digits.y_train.astype("int32")
    test_images, test_labels = as_floats(digits.x_test), digits.y_test
    keras.utils.set_random_seed(given.seed)
    model = keras.Sequential([keras.Input((28, 28, 1)), *convolutions(16, 32), keras.layers.Dense(10)])
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # Elastic: what takes long comes before this. A new process waits here until the others let it in.
    hvd.init()
    optimizer = keras.optimizers.Adam(given.lr * hvd.size())

    @tf.function
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    # Elastic: goes on after a failure from the last commit, and with other processes after a change.
    @hvd.elastic.run
    def train(state: Any) -> None:
        print(
            f"rank {hvd.rank()} of {hvd.size()} starts in epoch {state.epoch}, digit {state.done}", flush=True
        )
        while state.epoch < given.epochs:
            order = np.random.default_rng(state.epoch).permutation(len(images))
            together = given.batch_size * hvd.size()
            # Elastic: by the number of digits, not of batches, as their size changes with that of the job.
            while state.done + together <= len(images):
                own = order[state.done :][hvd.rank() : together : hvd.size()]
                step(tf.constant(images[own]), tf.constant(labels[own]))
                state.done += together
                # Elastic: from here on this batch is not lost any more.
                state.commit()
            right = np.mean(np.argmax(model(test_images, training=False), axis=1) == test_labels)
            if hvd.rank() == 0:
                print(f"epoch {state.epoch}: accuracy {right:.2%} with {hvd.size()} processes", flush=True)
            state.epoch += 1
            state.done = 0
            state.commit()

    # Elastic: all that must be the same in a process that joins.
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=0, done=0)
    # Elastic: called when the number of processes has changed.
    state.register_reset_callbacks([lambda: optimizer.learning_rate.assign(given.lr * hvd.size())])
    train(state)


if __name__ == "__main__":
    main()
