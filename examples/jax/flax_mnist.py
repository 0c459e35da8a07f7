"""Trains a small network on MNIST with Flax NNX, on any number of processes:

    horovodrun -np 2 python examples/jax/flax_mnist.py

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
from flax import nnx

import horovod.jax as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats, batches
from program import epochs_parser, share_of, told_errors
from training_report import Epoch, begin


class Net(nnx.Module):  # type: ignore[misc]
    """A convolution and a dense layer."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(1, 16, (3, 3), strides=2, rngs=rngs)
        self.out = nnx.Linear(14 * 14 * 16, 10, rngs=rngs)

    def __call__(self, images: Any) -> Any:
        return self.out(nnx.relu(self.conv(images)).reshape(len(images), -1))


def loss_and_right(model: Net, images: Any, labels: Any) -> tuple[Any, Any]:
    output = model(images)
    loss = optax.softmax_cross_entropy_with_integer_labels(output, labels).mean()
    return loss, (output.argmax(axis=1) == labels).mean()


@nnx.jit
def step(model: Net, optimizer: nnx.Optimizer, images: Any, labels: Any) -> Any:
    (loss, right), gradients = nnx.value_and_grad(loss_and_right, has_aux=True)(model, images, labels)
    optimizer.update(model, gradients)
    return jnp.stack([loss, right])


@nnx.jit
def evaluate(model: Net, images: Any, labels: Any) -> Any:
    return jnp.stack(loss_and_right(model, images, labels))


def run(options: Namespace) -> None:
    # Horovod: who am I, and who are the others.
    hvd.init()
    report, digits = begin("MNIST with Flax", options)
    # Horovod: each rank has its part of the digits.
    x, y = share_of(hvd.rank(), hvd.size(), as_floats(digits.x_train), digits.y_train)
    x_test, y_test = as_floats(digits.x_test), digits.y_test

    model = Net(nnx.Rngs(options.seed + hvd.rank()))
    # Horovod: all ranks start with rank 0's weights.
    nnx.update(model, hvd.broadcast_parameters(nnx.state(model, nnx.Param), root_rank=0))
    # Horovod: all ranks together see a larger batch, which allows for larger steps; gradients are averaged.
    distributed = hvd.DistributedOptimizer(optax.adam(options.lr * hvd.size()))
    optimizer = nnx.Optimizer(model, distributed, wrt=nnx.Param)

    size = min(options.batch_size, len(x))
    for epoch in range(1, options.epochs + 1):
        began, figures = time.perf_counter(), []
        with report.bar(f"Epoch {epoch}/{options.epochs}", len(x) // size) as advance:
            for images, labels in batches(x, y, size, [options.seed, epoch, hvd.rank()]):
                figures.append(step(model, optimizer, images, labels))
                advance()
        seconds = time.perf_counter() - began
        # Horovod: the average over the ranks.
        loss, right = hvd.allreduce(jnp.stack(figures).mean(axis=0), name="training").tolist()
        test_loss, test_right = evaluate(model, x_test, y_test).tolist()
        images = len(figures) * size * hvd.size()
        report.epoch(Epoch(loss, right, test_loss, test_right, images, seconds))
    report.finish([np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))])
    hvd.shutdown()


if __name__ == "__main__":
    with told_errors():
        run(epochs_parser("MNIST with Flax", epochs=10).parse_args())
