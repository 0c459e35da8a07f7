"""Trains the same model on slices of a batch on all ranks, and on the whole batch in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import horovod.torch as hvd

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
ROWS = 6  # per rank


def small_model() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4).eval(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 16, 9),
        nn.Linear(9, 3),
    )


def batch(step: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole batch of a step: ROWS rows for each rank."""
    generator = torch.Generator().manual_seed(100 + step)
    inputs = torch.randn(ROWS * ranks, 1, 6, 6, generator=generator)
    return inputs, torch.randint(0, 3, (ROWS * ranks,), generator=generator)


def loss_of(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor], begin: int, end: int) -> torch.Tensor:
    return nn.functional.cross_entropy(model(data[0][begin:end]), data[1][begin:end])


def train_alone(make: Make, steps: int, ranks: int, scale: float = 1.0) -> nn.Module:
    """One process on whole batches; the loss is multiplied by `scale`."""
    model = small_model()
    optimizer = make(list(model.parameters()))
    for step in range(steps):
        optimizer.zero_grad()
        (loss_of(model, batch(step, ranks), 0, ROWS * ranks) * scale).backward()
        optimizer.step()
    return model


def train_distributed(make: Make, steps: int, passes: int = 1, **arguments: Any) -> nn.Module:
    """This rank on its slice of each batch, cut into `passes` parts."""
    model = small_model()
    if hvd.rank() != 0:  # broadcast_parameters() must make up for that
        for parameter in model.parameters():
            parameter.data.add_(1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        make(list(model.parameters())),
        named_parameters=model.named_parameters(),
        backward_passes_per_step=passes,
        **arguments,
    )
    for step in range(steps):
        optimizer.zero_grad()
        data = batch(step, hvd.size())
        for part in range(passes):
            begin = hvd.rank() * ROWS + part * (ROWS // passes)
            loss_of(model, data, begin, begin + ROWS // passes).backward()
        optimizer.step()
    return model


def assert_same_on_all_ranks(model: nn.Module) -> None:
    """Bit for bit."""
    for name, tensor in model.state_dict().items():
        mine = tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.reshape(1)
        gathered = hvd.allgather(mine.reshape(1, -1))
        assert (gathered == gathered[0]).all(), f"{name} differs between ranks"


def assert_close(model: nn.Module, expected: nn.Module, tolerance: float = 1e-5) -> None:
    for (name, mine), other in zip(model.named_parameters(), expected.parameters(), strict=True):
        difference = (mine - other).abs().max().item()
        assert difference <= tolerance, f"{name} is off by {difference}"


def total(values: Any) -> float:
    """Of what a function gives for each rank."""
    return float(sum(values(rank) for rank in range(hvd.size())))


def one_layer(**arguments: Any) -> tuple[nn.Linear, Any]:
    torch.manual_seed(1)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters(), **arguments)


def backward(model: nn.Module, factor: float | None = None) -> None:
    rows = torch.full((1, 3), hvd.rank() + 1.0 if factor is None else factor)
    model(rows).sum().backward()
