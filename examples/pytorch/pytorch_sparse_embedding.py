"""Learns who likes what from examples, with embeddings whose gradients are sparse:

    horovodrun -np 2 python examples/pytorch/pytorch_sparse_embedding.py

A step touches a few rows of large tables. Horovod gathers these rows from all ranks instead of summing the
tables; with --sparse-as-dense it does the latter, for comparison.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import horovod.torch as hvd


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


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Sparse gradients with PyTorch: horovodrun -np 2 python pytorch_sparse_embedding.py",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--users", type=int, default=2000, help="rows of the first table")
    parser.add_argument("--items", type=int, default=2000, help="rows of the second table")
    parser.add_argument("--embedding-size", type=int, default=16, help="columns of both")
    parser.add_argument("--batch-size", type=int, default=512, help="pairs per step and process")
    parser.add_argument("--steps", type=int, default=600, help="how long to train")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate")
    parser.add_argument("--log-interval", type=int, default=100, help="steps between two lines")
    parser.add_argument("--seed", type=int, default=0, help="for data and start values")
    parser.add_argument(
        "--sparse-as-dense", action="store_true", help="sum whole tables instead of gathering rows"
    )
    options = parser.parse_args()
    sizes = ("users", "items", "embedding_size", "batch_size", "steps", "log_interval")
    for name in sizes:
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if options.lr <= 0 or options.seed < 0:
        parser.error("--lr must be above 0 and --seed not below")
    return options


def main() -> None:
    """Entry point."""
    options = parse()
    hvd.init()
    run(options)
    hvd.shutdown()


if __name__ == "__main__":
    main()
