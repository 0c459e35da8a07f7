"""Collectives within compiled functions. Two ranks or more."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import horovod.torch as hvd


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="aot_eager")


def check_functions() -> None:
    size, rank = hvd.size(), hvd.rank()

    def work(x: torch.Tensor, step: int) -> torch.Tensor:
        total = hvd.allreduce(x * 2, op=hvd.Sum, name=f"step {step}") + 1
        handle = hvd.allreduce_async_(total, op=hvd.Max)
        first = hvd.broadcast(x, 0)
        output, _ = hvd.alltoall(torch.ones(size), splits=[1] * size)
        return hvd.synchronize(handle) + first + output.sum() + hvd.allgather(x).sum()

    again = compiled(work)
    tensor = torch.full((3,), rank + 1.0)
    sums = size * (size + 1) / 2
    for step in range(10):
        assert again(tensor, step).tolist() == [2 * sums + 1 + 1 + size + 3 * sums] * 3


def check_gradient() -> None:
    tensor = torch.full((3,), hvd.rank() + 1.0, requires_grad=True)
    compiled(lambda x: hvd.allreduce(x * 2, op=hvd.Sum) * 3)(tensor).sum().backward()
    assert tensor.grad is not None and tensor.grad.tolist() == [6.0 * hvd.size()] * 3


def check_training() -> None:
    results = []
    for prepare in (lambda model: model, compiled):
        torch.manual_seed(hvd.rank())
        model = nn.Sequential(nn.Linear(3, 4), hvd.SyncBatchNorm(4), nn.ReLU(), nn.Linear(4, 1))
        hvd.broadcast_parameters(model.state_dict(), 0)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
        forward = prepare(model)
        for step in range(3):
            optimizer.zero_grad()
            inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * step + hvd.rank()))
            forward(inputs).pow(2).mean().backward()
            optimizer.step()
        results.append(torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]))
    torch.testing.assert_close(*results)
