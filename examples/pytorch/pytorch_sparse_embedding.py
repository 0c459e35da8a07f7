"""Learns who likes what from examples, with embeddings whose gradients are sparse:

    horovodrun -np 2 python examples/pytorch/pytorch_sparse_embedding.py

A step touches a few rows of large tables. Horovod gathers these rows from all ranks instead of summing the
tables; with --sparse-as-dense it does the latter, for comparison.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import horovod.torch as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from program import add_counts, learning_parser, told_errors


class Taste(nn.Module):
    """Scores a user and an item by the product of their vectors."""

    def __init__(self, users: int, items: int, size: int) -> None:
        super().__init__()
        self.users = nn.Embedding(users, size, sparse=True)
        self.items = nn.Embedding(items, size, sparse=True)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return (self.users(users) * self.items(items)).sum(1)


class Examples:
    """Endless pairs with an opinion that follows from hidden vectors, the same on all ranks."""

    def __init__(self, options: argparse.Namespace) -> None:
        hidden = torch.Generator().manual_seed(options.seed)
        self._users = torch.randn(options.users, 4, generator=hidden)
        self._items = torch.randn(options.items, 4, generator=hidden)
        # Every rank draws pairs of its own.
        self._draw = torch.Generator().manual_seed(options.seed + 1 + hvd.rank())

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        users = torch.randint(0, len(self._users), (size,), generator=self._draw)
        items = torch.randint(0, len(self._items), (size,), generator=self._draw)
        likes = ((self._users[users] * self._items[items]).sum(1) > 0).float()
        return users, items, likes


def run(options: argparse.Namespace) -> None:
    hvd.init()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    model = Taste(options.users, options.items, options.embedding_size)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer: Any = torch.optim.SparseAdam(list(model.parameters()), lr=options.lr)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), sparse_as_dense=options.sparse_as_dense
    )
    examples = Examples(options)
    if hvd.rank() == 0:
        way = "dense" if options.sparse_as_dense else "sparse"
        print(f"{options.users:,} users, {options.items:,} items, {hvd.size()} process(es), {way} gradients")
        print(" step    loss  guessed right  steps/s", flush=True)
    started = time.perf_counter()
    loss_sum, right_sum = 0.0, 0.0
    for step in range(1, options.steps + 1):
        users, items, likes = examples.batch(options.batch_size)
        optimizer.zero_grad()
        scores = model(users, items)
        loss = functional.binary_cross_entropy_with_logits(scores, likes)
        loss.backward()
        optimizer.step()
        loss_sum += loss.item()
        right_sum += float(((scores > 0).float() == likes).float().mean())
        if step % options.log_interval == 0:
            means = torch.tensor([loss_sum, right_sum]) / options.log_interval
            loss_mean, right = hvd.allreduce(means, name="progress").tolist()
            speed = options.log_interval / (time.perf_counter() - started)
            if hvd.rank() == 0:
                print(f"{step:5}  {loss_mean:6.4f}  {right:13.1%}  {speed:7.1f}", flush=True)
            started = time.perf_counter()
            loss_sum, right_sum = 0.0, 0.0
    hvd.shutdown()


def parse() -> argparse.Namespace:
    parser = learning_parser("Sparse gradients with PyTorch", 512, 0.02, batch="pairs per step and process")
    add_counts(
        parser,
        users=(2000, "rows of the first table"),
        items=(2000, "rows of the second table"),
        embedding_size=(16, "columns of both"),
        steps=(600, "how long to train"),
        log_interval=(100, "steps between two lines"),
    )
    parser.add_argument(
        "--sparse-as-dense", action="store_true", help="sum whole tables instead of gathering rows"
    )
    return parser.parse_args()


if __name__ == "__main__":
    with told_errors():
        run(parse())
