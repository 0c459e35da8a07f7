"""The optimizer for Adasum, on a power of two of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from optimizer_util import ROWS, assert_same_on_all_ranks, batch, loss_of, small_model
from util_expect import raises

import horovod.torch as hvd
from horovod.common.handles import table


def pair(a: Any, b: Any) -> Any:
    dot, aa, bb = (float(np.vdot(x, y)) for x, y in ((a, b), (a, a), (b, b)))
    return (1 - dot / (2 * aa)) * a + (1 - dot / (2 * bb)) * b if aa and bb else a + b


def combined(changes: list[Any]) -> Any:
    while len(changes) > 1:
        half = len(changes) // 2
        # Ranks are combined with their neighbours first.
        changes = [pair(changes[2 * i], changes[2 * i + 1]) for i in range(half)]
    return changes[0]


def check_update() -> None:
    torch.manual_seed(0)
    start = torch.randn(6, dtype=torch.float64)
    parameter = torch.nn.Parameter(start.clone())
    unused = torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter, unused], lr=0.1), [("p", parameter), ("unused", unused)], op=hvd.Adasum
    )
    assert type(optimizer).__name__ == "SGD" and isinstance(optimizer, torch.optim.SGD)
    directions = [torch.randn(6, dtype=torch.float64) for _ in range(hvd.size())]
    (parameter * directions[hvd.rank()]).sum().backward()
    optimizer.step()
    expected = start.numpy() + combined([(-0.1 * direction).numpy() for direction in directions])
    np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-12)
    assert unused.tolist() == [1.0, 1.0]
    optimizer.synchronize()
    with raises(AssertionError, "Adasum"):
        optimizer.skip_synchronize()
    optimizer.set_backward_passes_per_step(2)


def check_training() -> None:
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        model = small_model()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.Adam(model.parameters(), lr=0.01),
            model.named_parameters(),
            op=hvd.Adasum,
            compression=compression,
        )
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.9)
        losses = []
        for _ in range(12):
            optimizer.zero_grad()
            loss = loss_of(model, batch(0, hvd.size()), hvd.rank() * ROWS, (hvd.rank() + 1) * ROWS)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(float(hvd.allreduce(loss.detach())))
        assert_same_on_all_ranks(model)
        assert losses[-1] < 0.7 * losses[0], losses


def check_an_error_leaves_nothing_behind() -> None:
    """Not a parameter that has moved, and no operation that would still write into a tensor."""

    class Fails:
        calls = 0

        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
            Fails.calls += 1
            return tensor.to(torch.float8_e4m3fn) if Fails.calls == 2 else tensor, None

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
            return tensor

    for compression, error in ((hvd.Compression.none, hvd.HorovodInternalError), (Fails, ValueError)):
        other = hvd.rank() == 0 and compression is not Fails
        parameters = [torch.nn.Parameter(torch.zeros(2 + (other and i == 1))) for i in range(3)]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(parameters, lr=1.0), op=hvd.Adasum, compression=compression
        )
        before = len(table._pending)
        sum(parameter.sum() for parameter in parameters).backward()  # type: ignore[union-attr]
        with raises(error):
            optimizer.step()
        assert not any(parameter.any() for parameter in parameters)
        assert len(table._pending) == before
        parameters[1].requires_grad_(False)
        optimizer.step()
        assert parameters[0].tolist() == [-1.0, -1.0]
