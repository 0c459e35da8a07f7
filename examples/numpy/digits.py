"""Trains softmax regression on handwritten digits with numpy, on any number of processes:

    horovodrun -np 2 python examples/numpy/digits.py

Each process computes gradients on its share of every batch, Horovod averages them, and all take the same
step. However many processes there are, the result is that of one process on the whole batch.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import horovod.numpy as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from program import add_counts, learning_parser

Array = NDArray[Any]
CLASSES = 10
TEST_SHARE = 0.25


def load(seed: int) -> tuple[Array, Array, Array, Array]:
    """Images and labels for training, then for testing; the same split on every rank."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ImportError:
        sys.exit("The digits come with scikit-learn, which is not installed: pip install scikit-learn")
    digits = load_digits()
    images, labels = digits.data / 16.0, digits.target
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = np.split(order, [int(TEST_SHARE * len(order))])
    return images[train], labels[train], images[test], labels[test]


def softmax(scores: Array) -> Array:
    """Probabilities, one row per image."""
    powers: Array = np.exp(scores - scores.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def gradients(weights: dict[str, Array], images: Array, labels: Array, total: int) -> dict[str, Array]:
    """Gradients, and the loss, summed over these images and divided by `total`."""
    probabilities = softmax(images @ weights["matrix"] + weights["bias"])
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels]).sum()
    probabilities[rows, labels] -= 1.0
    return {
        "matrix": images.T @ probabilities / total,
        "bias": probabilities.sum(axis=0) / total,
        "loss": np.array(loss / total),
    }


def batches(count: int, size: int, generator: np.random.Generator) -> Iterator[Array]:
    """Indices of one epoch's batches, the same on every rank as their generators are."""
    order = generator.permutation(count)
    for start in range(0, count, size):
        yield order[start : start + size]


def accuracy(weights: dict[str, Array], images: Array, labels: Array) -> float:
    """The share of images that are recognised."""
    return float(np.mean((images @ weights["matrix"] + weights["bias"]).argmax(axis=1) == labels))


def train_epoch(
    weights: dict[str, Array],
    images: Array,
    labels: Array,
    options: argparse.Namespace,
    generator: np.random.Generator,
) -> float:
    """One pass over the data, in place; returns the mean loss."""
    losses = []
    for batch in batches(len(images), options.batch_size, generator):
        share = batch[hvd.rank() :: hvd.size()]
        mine = gradients(weights, images[share], labels[share], len(batch))
        # Each part is already divided by the size of the whole batch, so their sum is its mean: also when
        # the batch does not divide evenly and some ranks have one image more.
        matrix, bias, loss = hvd.grouped_allreduce_(list(mine.values()), name="gradients", op=hvd.Sum)
        weights["matrix"] -= options.lr * matrix
        weights["bias"] -= options.lr * bias
        losses.append(float(loss))
    return float(np.mean(losses))


def fingerprint(weights: dict[str, Array]) -> str:
    """A hash of every bit of the weights."""
    return hashlib.sha256(b"".join(array.tobytes() for array in weights.values())).hexdigest()[:16]


def say(text: str) -> None:
    """Prints on rank 0."""
    if hvd.rank() == 0:
        print(text, flush=True)


def train(options: argparse.Namespace) -> dict[str, Array]:
    """The whole run; returns the weights."""
    images, labels, test_images, test_labels = load(options.seed)
    # Every rank starts differently on purpose; the broadcast makes them equal.
    start = np.random.default_rng([options.seed, hvd.rank()])
    weights = {"matrix": start.normal(0.0, 0.01, (images.shape[1], CLASSES)), "bias": np.zeros(CLASSES)}
    hvd.broadcast_parameters(weights, root_rank=0)
    processes = "1 process" if hvd.size() == 1 else f"{hvd.size()} processes"
    say(f"{len(images)} digits to learn from, {len(test_images)} to be tested on, {processes}")
    say("epoch    loss  test accuracy  samples/s")

    generator = np.random.default_rng(options.seed)
    training_seconds = 0.0
    correct = accuracy(weights, test_images, test_labels)
    for epoch in range(1, options.epochs + 1):
        started = time.perf_counter()
        loss = train_epoch(weights, images, labels, options, generator)
        seconds = time.perf_counter() - started
        training_seconds += seconds
        correct = accuracy(weights, test_images, test_labels)
        say(f"{epoch:5}  {loss:6.4f}  {correct:13.1%}  {len(images) / seconds:9,.0f}")

    prints = hvd.allgather(np.frombuffer(fingerprint(weights).encode(), np.uint8).reshape(1, -1))
    found = [bytes(row).decode() for row in prints]
    say("")
    say(f"Test accuracy  {correct:.1%} after {options.epochs} epochs")
    say(f"Speed          {options.epochs * len(images) / max(training_seconds, 1e-9):,.0f} samples/s")
    if len(set(found)) > 1:
        sys.exit(f"The ranks' weights differ: {found}. This must not happen; please report it.")
    say(f"Weights        {found[0]}, the same bits on {_ranks(hvd.size())}")
    return weights


def _ranks(size: int) -> str:
    return "the only rank" if size == 1 else "both ranks" if size == 2 else f"all {size} ranks"


def parse() -> argparse.Namespace:
    parser = learning_parser(
        "Softmax regression on digits", 64, 0.5, batch="images per step of all processes"
    )
    add_counts(parser, epochs=(20, "passes over the data"))
    parser.add_argument("--save", metavar="FILE", help="write the weights there (.npz)")
    return parser.parse_args()


def main() -> None:
    """Entry point."""
    options = parse()
    hvd.init()
    weights = train(options)
    if options.save and hvd.rank() == 0:
        np.savez(options.save, matrix=weights["matrix"], bias=weights["bias"])
    hvd.shutdown()


if __name__ == "__main__":
    main()
