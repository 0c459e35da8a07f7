"""Trains on MNIST with PyTorch while processes come and go:

    horovodrun -np 2 --min-np 1 --host-discovery-script examples/elastic/discover_hosts.sh \
        python examples/elastic/pytorch_mnist_elastic.py

Edit the hosts in the script, or kill a process, and watch. What makes it elastic is marked with "Elastic:".
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats, load_digits
from program import elastic_parser


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 10),
    )  # fmt: skip


def main() -> None:
    given = elastic_parser("MNIST with PyTorch, elastic", lr=0.01).parse_args()
    torch.set_num_threads(1)  # the processes share the cores
    digits = load_digits(given.data_dir, given.limit)
    images = torch.from_numpy(as_floats(digits.x_train)).permute(0, 3, 1, 2)
    data = TensorDataset(images, torch.from_numpy(digits.y_train).long())
    test_images = torch.from_numpy(as_floats(digits.x_test)).permute(0, 3, 1, 2)
    test_labels = torch.from_numpy(digits.y_test).long()
    torch.manual_seed(given.seed)
    model = build_model()
    # Elastic: what takes long comes before this. A new process waits here until the others let it in.
    hvd.init()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=given.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    # Elastic: deals out what is left of an epoch when the number of processes changes.
    sampler = hvd.elastic.ElasticSampler(data)
    loader = DataLoader(data, batch_size=given.batch_size, sampler=sampler)

    # Elastic: goes on after a failure from the last commit, and with other processes after a change.
    @hvd.elastic.run
    def train(state: Any) -> None:
        print(
            f"rank {hvd.rank()} of {hvd.size()} starts in epoch {state.epoch}, batch {state.batch}",
            flush=True,
        )
        while state.epoch < given.epochs:
            model.train()
            for number, (images, labels) in enumerate(loader):
                optimizer.zero_grad()
                functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
                sampler.record_batch(number, given.batch_size)
                state.batch += 1
                # Elastic: from here on this batch is not lost any more.
                if state.batch % 10 == 0:
                    state.commit()
            model.eval()
            with torch.no_grad():
                right = (model(test_images).argmax(1) == test_labels).float().mean()
            if hvd.rank() == 0:
                print(f"epoch {state.epoch}: accuracy {right:.2%} with {hvd.size()} processes", flush=True)
            state.epoch += 1
            state.batch = 0
            sampler.set_epoch(state.epoch)
            state.commit()

    # Elastic: all that must be the same in a process that joins.
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0)

    def set_rate() -> None:
        for group in optimizer.param_groups:
            group["lr"] = given.lr * hvd.size()

    # Elastic: called when the number of processes has changed.
    state.register_reset_callbacks([set_rate])
    train(state)


if __name__ == "__main__":
    main()
