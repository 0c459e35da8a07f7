"""Gradients through the collectives. Two ranks or more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import horovod.torch as hvd


def leaf(*shape: int, seed: int | None = None) -> Tensor:
    random = torch.Generator().manual_seed(hvd.rank() if seed is None else seed)
    return torch.randn(*shape, generator=random, dtype=torch.float64).requires_grad_()


def weights(*shape: int, rank: int | None = None) -> Tensor:
    """Another gradient on each rank, which every rank can compute."""
    random = torch.Generator().manual_seed(100 + (hvd.rank() if rank is None else rank))
    return torch.randn(*shape, generator=random, dtype=torch.float64)


def all_weights(*shape: int) -> Tensor:
    return torch.stack([weights(*shape, rank=rank) for rank in range(hvd.size())])


def close(actual: Tensor | None, expected: Tensor) -> None:
    assert actual is not None
    torch.testing.assert_close(actual, expected)


def gradient_of(call: Callable[[Tensor], Tensor], *shape: int) -> tuple[Tensor, Tensor]:
    tensor = leaf(*shape)
    result = call(tensor)
    assert result.requires_grad and not result.is_leaf
    result.backward(weights(*result.shape))
    assert tensor.grad is not None
    return tensor.grad, result.detach()


def check_nothing_to_differentiate() -> None:
    plain, tracked = torch.ones(3), torch.ones(3, requires_grad=True)
    assert not hvd.allreduce(plain).requires_grad
    with torch.no_grad():
        assert not hvd.allreduce(tracked).requires_grad
        assert not hvd.allgather(tracked).requires_grad
    assert not hvd.synchronize(hvd.allreduce_async(tracked)).requires_grad


def check_allreduce() -> None:
    for name in (None, "differentiated"):
        grad, _ = gradient_of(lambda x, name=name: hvd.allreduce(x, name=name), 3, 4)
        close(grad, all_weights(3, 4).mean(0))
    grad, _ = gradient_of(lambda x: hvd.allreduce(x, op=hvd.Sum), 5)
    close(grad, all_weights(5).sum(0))
    grad, _ = gradient_of(
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0), 5
    )
    close(grad, 6 * all_weights(5).sum(0))
    grad, _ = gradient_of(lambda x: hvd.allreduce(x.t() * 2, op=hvd.Sum), 2, 3)
    close(grad, 2 * all_weights(3, 2).sum(0).t())
    tensor = leaf(3)
    hvd.allreduce(tensor, op=hvd.Sum).sum().backward()  # an expanded gradient
    close(tensor.grad, torch.full((3,), float(hvd.size()), dtype=torch.float64))


def check_compressed() -> None:
    tensor = torch.full((3,), 2.0, requires_grad=True)
    hvd.allreduce(tensor, op=hvd.Sum, compression=hvd.Compression.fp16).sum().backward()
    close(tensor.grad, torch.full((3,), float(hvd.size())))


def check_grouped_allreduce() -> None:
    first, second, number = leaf(3), leaf(2, 2), torch.arange(4)
    results = hvd.grouped_allreduce([first, number, second], op=hvd.Sum, name="mixed")
    assert results[1].tolist() == [hvd.size() * i for i in range(4)] and not results[1].requires_grad
    (results[0] * weights(3)).sum().backward(retain_graph=True)
    close(first.grad, all_weights(3).sum(0))
    close(second.grad, torch.zeros(2, 2, dtype=torch.float64))
    results[2].backward(weights(2, 2))
    close(second.grad, all_weights(2, 2).sum(0))


def check_one_rank_alone_needs_a_gradient_of_one_tensor() -> None:
    first, second = leaf(3), leaf(2)
    if hvd.rank() == 0:
        second.requires_grad_(False)
    results = hvd.grouped_allreduce([first, second])
    (results[0].sum() + results[1].sum()).backward()
    close(first.grad, torch.ones(3, dtype=torch.float64))
    assert hvd.rank() != 0 or second.grad is None


def rows_of(rank: int) -> int:
    return 0 if rank == 1 else rank + 2


def check_allgather() -> None:
    size, rank = hvd.size(), hvd.rank()
    everything = sum(map(rows_of, range(size)))
    start = sum(map(rows_of, range(rank)))
    for name in (None, "gather with gradient"):
        grad, result = gradient_of(lambda x, name=name: hvd.allgather(x, name=name), rows_of(rank), 3)
        assert result.shape == (everything, 3)
        close(grad, all_weights(everything, 3).mean(0)[start : start + rows_of(rank)])


def check_grouped_allgather() -> None:
    size, rank = hvd.size(), hvd.rank()
    first, second = leaf(rows_of(rank), 2), leaf(1)
    results = hvd.grouped_allgather([first, second])
    everything, start = sum(map(rows_of, range(size))), sum(map(rows_of, range(rank)))
    torch.autograd.backward(results, [weights(everything, 2), weights(size)])
    close(first.grad, all_weights(everything, 2).mean(0)[start : start + rows_of(rank)])
    close(second.grad, all_weights(size).mean(0)[rank : rank + 1])


def check_broadcast() -> None:
    for root in range(hvd.size()):
        grad, result = gradient_of(lambda x, root=root: hvd.broadcast(x, root), 4)
        close(result, leaf(4, seed=root).detach())
        mean = all_weights(4).mean(0)
        close(grad, mean if hvd.rank() == root else torch.zeros_like(mean))


def check_alltoall() -> None:
    size, rank = hvd.size(), hvd.rank()
    grad, _ = gradient_of(lambda x: hvd.alltoall(x), size, 2)
    close(grad, torch.stack([weights(size, 2, rank=receiver)[rank] for receiver in range(size)]))
    # Rank r sends (r + to) % 3 rows; one more row stays and has no gradient.
    splits = [[(sender + to) % 3 for to in range(size)] for sender in range(size)]
    tensor = leaf(sum(splits[rank]) + 1, 2)
    output, received = hvd.alltoall(tensor, splits=splits[rank], name="uneven")
    assert not received.requires_grad
    output.backward(weights(*output.shape))
    expected = []
    for receiver in range(size):
        inbound = [splits[sender][receiver] for sender in range(size)]
        sent = weights(sum(inbound), 2, rank=receiver)
        expected.append(sent[sum(inbound[:rank]) :][: splits[rank][receiver]])
    close(tensor.grad, torch.cat([*expected, torch.zeros(1, 2, dtype=torch.float64)]))


def check_reducescatter() -> None:
    size, rank = hvd.size(), hvd.rank()
    rows = 2 * size + 1

    def gathered(factor: float) -> Tensor:
        counts = [rows // size + (r < rows % size) for r in range(size)]
        return factor * torch.cat([weights(count, 2, rank=r) for r, count in enumerate(counts)])

    grad, _ = gradient_of(lambda x: hvd.reducescatter(x), rows, 2)
    close(grad, gathered(1))
    grad, _ = gradient_of(lambda x: hvd.reducescatter(x, op=hvd.Sum, name="scattered"), rows, 2)
    close(grad, gathered(size))
    grad, _ = gradient_of(lambda x: hvd.reducescatter(x, prescale_factor=0.5, postscale_factor=8.0), rows, 2)
    close(grad, gathered(4))
    first, second = leaf(size), leaf(size)
    results = hvd.grouped_reducescatter([first, second], op=hvd.Sum)
    torch.autograd.backward(results, [weights(1), 2 * weights(1)])
    close(first.grad, size * all_weights(1)[:, 0])
    close(second.grad, 2 * size * all_weights(1)[:, 0])
    assert rank < size


def check_gradients_of_gradients() -> None:
    calls: list[Callable[[Tensor], Any]] = [
        lambda x: hvd.allreduce(x),
        hvd.allgather,
        lambda x: hvd.broadcast(x, 0),
        hvd.alltoall,
        lambda x: hvd.reducescatter(x),
    ]
    for call in calls:
        tensor = leaf(hvd.size(), 2)
        [grad] = torch.autograd.grad((call(tensor) ** 3).sum(), tensor, create_graph=True)
        [second] = torch.autograd.grad((grad**2).sum(), tensor)
        assert second.shape == tensor.shape and second.isfinite().all()
    # f = mean over ranks of x, cubed and summed: f' = mean of 3 m^2, the same on all ranks.
    tensor = leaf(2)
    mean = hvd.allreduce(tensor)
    [grad] = torch.autograd.grad((mean**3).sum(), tensor, create_graph=True)
    close(grad, 3 * mean.detach() ** 2)
    [second] = torch.autograd.grad(grad.sum(), tensor)
    close(second, 6 * mean.detach())


def check_process_set() -> None:
    high = hvd.add_process_set(range(1, hvd.size()))
    if hvd.rank() != 0:
        grad, _ = gradient_of(lambda x: hvd.allreduce(x, process_set=high), 3)
        close(grad, all_weights(3)[1:].mean(0))
        grad, _ = gradient_of(lambda x: hvd.allgather(x, process_set=high), 1)
        close(grad, all_weights(hvd.size() - 1)[1:].mean(0)[hvd.rank() - 1 : hvd.rank()])
        grad, _ = gradient_of(lambda x: hvd.reducescatter(x, op=hvd.Sum, process_set=high), hvd.size() - 1)
        close(grad, (hvd.size() - 1) * all_weights(1)[1:, 0])
        grad, _ = gradient_of(lambda x: hvd.broadcast(x, 1, process_set=high), 3)
        close(grad, all_weights(3)[1:].mean(0) * (hvd.rank() == 1))
    hvd.barrier()
    hvd.remove_process_set(high)
