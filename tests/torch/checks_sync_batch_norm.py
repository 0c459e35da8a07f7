"""SyncBatchNorm on parts of a batch against plain batch normalization of the whole. Two ranks or more."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from util_expect import raises

import horovod.torch as hvd

CHANNELS = 3


def rows_of(rank: int, uneven: bool) -> int:
    return 2 * rank + 1 if uneven else 4


def whole(uneven: bool, trailing: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    rows = sum(rows_of(rank, uneven) for rank in range(hvd.size()))
    random = torch.Generator().manual_seed(7)
    # Far from zero and of another scale per row: what a wrong weighting of the ranks would show in.
    batch = torch.randn(rows, CHANNELS, *trailing, generator=random, dtype=torch.float64)
    scale = torch.linspace(1, 5, rows, dtype=torch.float64).reshape(-1, *[1] * (batch.dim() - 1))
    return (batch * scale + 10 * scale).to(dtype)


def own(batch: Tensor, uneven: bool) -> Tensor:
    start = sum(rows_of(rank, uneven) for rank in range(hvd.rank()))
    return batch[start : start + rows_of(hvd.rank(), uneven)]


def plain_for(trailing: tuple[int, ...]) -> Any:
    return {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[len(trailing)]


def compare(uneven: bool, trailing: tuple[int, ...], dtype: torch.dtype, **options: Any) -> None:
    batch = whole(uneven, trailing, dtype)
    plain, sync = plain_for(trailing)(CHANNELS, **options), hvd.SyncBatchNorm(CHANNELS, **options)
    for module in (plain, sync):
        module.to(dtype if dtype is torch.float64 else torch.float32)
        if module.affine:
            with torch.no_grad():
                module.weight.copy_(torch.tensor([0.5, 1.0, -2.0]))
                module.bias.copy_(torch.tensor([1.0, 0.0, -1.0]))
    tolerance = {torch.float64: 1e-9, torch.float32: 2e-4}.get(dtype, 3e-2)

    def close(actual: Tensor | None, expected: Tensor | None) -> None:
        assert actual is not None and expected is not None
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)

    for _ in range(2):
        everything = batch.clone().requires_grad_()
        mine = own(batch, uneven).clone().requires_grad_()
        expected, actual = plain(everything), sync(mine)
        assert actual.dtype == expected.dtype
        close(actual, own(expected, uneven))
        weights = torch.sin(torch.arange(expected.numel())).reshape(expected.shape).to(expected.dtype)
        plain.zero_grad(), sync.zero_grad()
        expected.backward(weights)
        actual.backward(own(weights, uneven).clone())
        assert everything.grad is not None
        close(mine.grad, own(everything.grad, uneven))
        if plain.affine:
            for name in ("weight", "bias"):
                # Each rank has the part of its own batch.
                close(hvd.allreduce(getattr(sync, name).grad, op=hvd.Sum), getattr(plain, name).grad)
        if plain.track_running_stats:
            close(sync.running_mean, plain.running_mean)
            close(sync.running_var, plain.running_var)
            assert sync.num_batches_tracked == plain.num_batches_tracked
    plain.eval(), sync.eval()
    close(
        sync(own(batch, uneven)),
        own(plain(batch), uneven) if plain.track_running_stats else plain(own(batch, uneven)),
    )


def check_against_plain() -> None:
    for uneven in (False, True):
        for trailing in ((), (5,), (4, 3), (2, 3, 2)):
            compare(uneven, trailing, torch.float64)
            compare(uneven, trailing, torch.float32)


def check_options() -> None:
    compare(True, (4, 3), torch.float64, affine=False)
    compare(True, (4, 3), torch.float64, momentum=None)
    compare(True, (4, 3), torch.float64, momentum=0.7, eps=0.5)
    compare(True, (4,), torch.float64, track_running_stats=False)


def check_small_floats() -> None:
    compare(True, (4, 3), torch.bfloat16)
    compare(True, (4, 3), torch.float16)


def check_rank_without_data() -> None:
    sync, plain = hvd.SyncBatchNorm(CHANNELS), nn.BatchNorm1d(CHANNELS)
    batch = torch.randn(6, CHANNELS, generator=torch.Generator().manual_seed(1))
    mine = (batch if hvd.rank() == 0 else batch[:0]).clone().requires_grad_()
    result, expected = sync(mine), plain(batch)
    torch.testing.assert_close(result, expected if hvd.rank() == 0 else expected[:0])
    result.sum().backward()
    torch.testing.assert_close(sync.running_var, plain.running_var)


def check_channels_last_and_frozen_input() -> None:
    batch = torch.randn(4, CHANNELS, 5, 5, generator=torch.Generator().manual_seed(hvd.rank()))
    sync = hvd.SyncBatchNorm(CHANNELS)
    expected = sync(batch)
    result = sync(batch.to(memory_format=torch.channels_last))
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    assert sync.weight.grad is not None


def check_within_a_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), hvd.SyncBatchNorm(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 9, 2)
    )
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(hvd.rank() + 1, 1, 5, 5)).pow(2).sum().backward()
        optimizer.step()
    for name, tensor in model.state_dict().items():
        gathered = hvd.allgather(tensor.detach().reshape(1, -1))
        assert (gathered == gathered[0]).all(), name


def check_mistakes() -> None:
    sync = hvd.SyncBatchNorm(CHANNELS)
    with raises(ValueError, "dimensions"):
        sync(torch.ones(CHANNELS))
    with raises(ValueError, "channels"):
        sync(torch.ones(2, CHANNELS + 1))
    with raises(ValueError, "more than 1 value"):
        sync(torch.ones(1 if hvd.rank() == 0 else 0, CHANNELS))
    assert isinstance(sync, nn.modules.batchnorm._BatchNorm)
