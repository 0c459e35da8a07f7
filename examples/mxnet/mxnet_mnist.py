"""Trains a small convolutional network on MNIST with MXNet's gluon, on any number of processes:

    horovodrun -np 2 python examples/mxnet/mxnet_mnist.py

What makes it distributed is marked with "Horovod:". MXNet 1.9.1 needs numpy < 1.24 and so, beside newer
frameworks, an environment of its own: docs/mxnet.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import horovod.mxnet as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats
from program import epochs_parser, share_of, told_errors
from training_report import Epoch, begin

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def build_model() -> Any:
    """Without the sizes of inputs: gluon finds them out with the first batch."""
    net = gluon.nn.HybridSequential(prefix="digits_")
    with net.name_scope():
        for channels in (16, 32):
            net.add(gluon.nn.Conv2D(channels, 3, activation="relu"), gluon.nn.MaxPool2D())
        net.add(gluon.nn.Flatten(), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def loader(images: Any, labels: Any, batch_size: int, shuffle: bool) -> Any:
    # Horovod: each rank has its part of the digits; parts of one size, for equally many steps.
    images, labels = share_of(hvd.rank(), hvd.size(), as_floats(images), labels.astype(np.float32))
    dataset = gluon.data.ArrayDataset(images.transpose(0, 3, 1, 2), labels)
    return gluon.data.DataLoader(dataset, batch_size, shuffle=shuffle)


def one_pass(net: Any, data: Any, trainer: Any = None) -> tuple[float, float]:
    """Loss and accuracy over the digits of all ranks; with a trainer it learns from them."""
    total, right, count = 0.0, 0, 0
    for images, labels in data:
        if trainer is None:
            output = net(images)
            loss = LOSS(output, labels)
        else:
            with autograd.record():
                output = net(images)
                loss = LOSS(output, labels)
            loss.backward()
            trainer.step(len(images))  # Horovod: averages the gradients of the ranks
        total += float(loss.sum().asscalar())
        right += int((output.argmax(axis=1) == labels).sum().asscalar())
        count += len(images)
    # Horovod: every rank saw as many digits, so that the mean of their means is that of all.
    averaged = hvd.allreduce(mx.nd.array([total / count, right / count])).asnumpy()
    return float(averaged[0]), float(averaged[1])


def run(options: argparse.Namespace) -> None:
    # Horovod: who am I, and who are the others.
    hvd.init()
    mx.random.seed(options.seed + hvd.rank())
    np.random.seed(options.seed + hvd.rank())
    report, digits = begin("MNIST with MXNet", options)
    learn = loader(digits.x_train, digits.y_train, options.batch_size, True)
    test = loader(digits.x_test, digits.y_test, options.batch_size, False)
    net = build_model()
    # Horovod: all ranks start with rank 0's weights, as soon as there are any.
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    # Horovod: all ranks together see a larger batch, which allows for larger steps.
    trainer = hvd.DistributedTrainer(net.collect_params(), "adam", {"learning_rate": options.lr * hvd.size()})
    for _ in range(options.epochs):
        started = time.perf_counter()
        learned = one_pass(net, learn, trainer)
        seconds = time.perf_counter() - started
        report.epoch(Epoch(*learned, *one_pass(net, test), len(digits.x_train), seconds))
    # Horovod: only one rank writes files.
    if options.save and hvd.rank() == 0:
        net.save_parameters(options.save)
    report.finish(parameter.data().asnumpy() for parameter in net.collect_params().values())
    hvd.shutdown()


def parse() -> argparse.Namespace:
    parser = epochs_parser("MNIST with MXNet", epochs=8, batch_size=32)
    parser.add_argument("--save", metavar="FILE", help="rank 0 writes the trained weights there")
    return parser.parse_args()


if __name__ == "__main__":
    with told_errors():
        run(parse())
