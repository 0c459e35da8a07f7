"""Trains a small network on MNIST with Flax Linen, each epoch as one compiled program:

    horovodrun -np 2 python examples/jax/flax_linen_mnist.py

What makes it distributed is marked with "Horovod:".
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from flax import linen
from flax.training.train_state import TrainState

import horovod.jax as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats
from program import epochs_parser, share_of, told_errors
from training_report import Epoch, begin


class Net(linen.Module):  # type: ignore[misc]
    """A convolution and a dense layer."""

    @linen.compact  # type: ignore[untyped-decorator]
    def __call__(self, images: Any) -> Any:
        hidden = linen.relu(linen.Conv(16, (3, 3), strides=2)(images))
        return linen.Dense(10)(hidden.reshape(len(images), -1))


def figures_of(state: TrainState, weights: Any, batch: Any) -> tuple[Any, Any]:
    images, labels = batch
    output = state.apply_fn({"params": weights}, images)
    loss = optax.softmax_cross_entropy_with_integer_labels(output, labels).mean()
    return loss, (output.argmax(axis=1) == labels).mean()


@jax.jit
def train(state: TrainState, batches: Any) -> tuple[TrainState, Any]:
    """All batches, one after another; with the means of loss and of what was right."""

    def step(state: TrainState, batch: Any) -> tuple[TrainState, Any]:
        gradient_of = jax.value_and_grad(lambda weights: figures_of(state, weights, batch), has_aux=True)
        figures, gradients = gradient_of(state.params)
        return state.apply_gradients(grads=gradients), figures

    state, figures = jax.lax.scan(step, state, batches)
    return state, jax.tree.map(lambda each: each.mean(), figures)


@jax.jit
def evaluate(state: TrainState, batch: Any) -> tuple[Any, Any]:
    return figures_of(state, state.params, batch)


def start(options: Namespace) -> TrainState:
    model = Net()
    weights = model.init(jax.random.key(options.seed + hvd.rank()), np.zeros((1, 28, 28, 1), np.float32))
    # Horovod: all ranks together see a larger batch, which allows for larger steps; gradients are averaged.
    optimizer = hvd.DistributedOptimizer(optax.adam(options.lr * hvd.size()))
    # Horovod: all ranks start with rank 0's weights.
    params = hvd.broadcast_parameters(weights["params"], root_rank=0)
    return TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)


def run(options: Namespace) -> None:
    # Horovod: who am I, and who are the others.
    hvd.init()
    report, digits = begin("MNIST with Flax Linen", options)
    test = as_floats(digits.x_test), digits.y_test
    # Horovod: each rank has its part of the digits; parts of one size, for equally many steps.
    x, y = share_of(hvd.rank(), hvd.size(), as_floats(digits.x_train), digits.y_train)
    size = min(options.batch_size, len(x))
    steps = len(x) // size

    state = start(options)
    for epoch in range(1, options.epochs + 1):
        began = time.perf_counter()
        order = np.random.default_rng([options.seed, epoch, hvd.rank()]).permutation(len(x))
        chosen = order[: steps * size].reshape(steps, size)
        state, figures = train(state, (x[chosen], y[chosen]))
        # Horovod: the average over the ranks.
        loss, right = map(float, hvd.allreduce(figures, name="training"))
        seconds = time.perf_counter() - began
        test_loss, test_right = map(float, evaluate(state, test))
        report.epoch(Epoch(loss, right, test_loss, test_right, steps * size * hvd.size(), seconds))
    report.finish([np.asarray(leaf) for leaf in jax.tree.leaves(state.params)])
    hvd.shutdown()


if __name__ == "__main__":
    with told_errors():
        run(epochs_parser("MNIST with Flax Linen", epochs=10).parse_args())
