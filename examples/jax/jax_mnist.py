"""Trains a small network on MNIST with JAX and optax, on any number of processes:

    horovodrun -np 2 python examples/jax/jax_mnist.py

What makes it distributed is marked with "Horovod:".
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import horovod.jax as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats, batches
from program import epochs_parser, share_of, told_errors
from training_report import Epoch, begin


def start_weights(seed: int) -> Any:
    """Of two dense layers."""
    keys = jax.random.split(jax.random.key(seed))
    return {
        "hidden": {"w": jax.random.normal(keys[0], (784, 128)) * 0.05, "b": jnp.zeros(128)},
        "out": {"w": jax.random.normal(keys[1], (128, 10)) * 0.05, "b": jnp.zeros(10)},
    }


def predict(weights: Any, images: Any) -> Any:
    hidden = images.reshape(len(images), -1) @ weights["hidden"]["w"] + weights["hidden"]["b"]
    return jax.nn.relu(hidden) @ weights["out"]["w"] + weights["out"]["b"]


def loss_and_right(weights: Any, images: Any, labels: Any) -> tuple[Any, Any]:
    output = predict(weights, images)
    loss = optax.softmax_cross_entropy_with_integer_labels(output, labels).mean()
    return loss, (output.argmax(axis=1) == labels).mean()


def run(options: Namespace) -> None:
    # Horovod: who am I, and who are the others.
    hvd.init()
    report, digits = begin("MNIST with JAX", options)
    # Horovod: each rank has its part of the digits.
    x, y = share_of(hvd.rank(), hvd.size(), as_floats(digits.x_train), digits.y_train)
    x_test, y_test = as_floats(digits.x_test), digits.y_test

    # Horovod: all ranks together see a larger batch, which allows for larger steps; gradients are averaged.
    optimizer = hvd.DistributedOptimizer(optax.adam(options.lr * hvd.size()))
    weights = start_weights(options.seed + hvd.rank())
    # Horovod: all ranks start with rank 0's weights.
    weights = hvd.broadcast_parameters(weights, root_rank=0)
    state = optimizer.init(weights)

    @jax.jit
    def step(weights: Any, state: Any, images: Any, labels: Any) -> Any:
        (loss, right), gradients = jax.value_and_grad(loss_and_right, has_aux=True)(weights, images, labels)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, jnp.stack([loss, right])

    size = min(options.batch_size, len(x))
    for epoch in range(1, options.epochs + 1):
        began, figures = time.perf_counter(), []
        with report.bar(f"Epoch {epoch}/{options.epochs}", len(x) // size) as advance:
            for images, labels in batches(x, y, size, [options.seed, epoch, hvd.rank()]):
                weights, state, figure = step(weights, state, images, labels)
                figures.append(figure)
                advance()
        seconds = time.perf_counter() - began
        # Horovod: the average over the ranks.
        loss, right = hvd.allreduce(jnp.stack(figures).mean(axis=0), name="training").tolist()
        test_loss, test_right = map(float, loss_and_right(weights, x_test, y_test))
        images = len(figures) * size * hvd.size()
        report.epoch(Epoch(loss, right, test_loss, test_right, images, seconds))
    report.finish([np.asarray(leaf) for leaf in jax.tree.leaves(weights)])
    hvd.shutdown()


if __name__ == "__main__":
    with told_errors():
        run(epochs_parser("MNIST with JAX", epochs=10).parse_args())
