"""What counts as a step of the training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from util_expect import cases

import horovod.torch as hvd

hvd.init()

TIMES = 4


def counted(run: Callable[[], Any]) -> int:
    """How many steps TIMES calls have, after two that make them known."""
    for _ in range(2):
        run()
    before = hvd.metrics()["steps_total"]
    for _ in range(TIMES):
        run()
    return int(hvd.metrics()["steps_total"] - before)


def training(op: int = hvd.Average, passes: int = 1) -> Callable[[], None]:
    """A step of a model of its own."""
    model = torch.nn.Linear(3, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.01),
        model.named_parameters(),
        op=op,
        backward_passes_per_step=passes,
    )

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(passes):
            model(torch.ones(2, 3)).sum().backward()
        optimizer.step()

    return step


@cases("average", "adasum")
def check_optimizer(op: str) -> None:
    if op == "adasum" and hvd.size() & (hvd.size() - 1):
        return
    for passes in (1, 2):
        assert counted(training(hvd.Adasum if op == "adasum" else hvd.Average, passes)) == TIMES


def check_several_optimizers_are_one_step() -> None:
    generator, discriminator = training(), training()

    def step() -> None:
        discriminator()
        generator()

    assert counted(step) == TIMES

    def uneven() -> None:
        generator()
        discriminator()
        discriminator()

    assert counted(uneven) == 2 * TIMES
