"""DistributedOptimizer when a step is broken off while gradients are in flight. Two ranks or more."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from typing import Any

import torch
from optimizer_util import total
from torch import nn
from util_expect import raises

import horovod.torch as hvd

LARGE = 200_000  # elements: sent at once


class InterruptError(BaseException):
    """Stands for a Ctrl-C."""


@contextlib.contextmanager
def interrupted_soon() -> Iterator[None]:
    """The block waits for something that does not come, and gets an InterruptError."""

    def interrupt(*_: object) -> None:
        raise InterruptError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with raises(InterruptError):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def two_parameters(**arguments: Any) -> tuple[nn.Parameter, nn.Parameter, Any]:
    first, second = (nn.Parameter(torch.zeros(LARGE)) for _ in range(2))
    optimizer = torch.optim.SGD([first, second], lr=1.0)
    named = [("first", first), ("second", second)]
    return first, second, hvd.DistributedOptimizer(optimizer, named, op=hvd.Sum, **arguments)


def value(parameter: nn.Parameter) -> float:
    """Of the gradient, whose elements are all the same."""
    assert parameter.grad is not None
    return parameter.grad[0].item()


def check_synchronize_goes_on_after_an_interrupt() -> None:
    """What had landed is not sent again: it would be summed twice, with the others' next gradient."""
    first, second, optimizer = two_parameters()
    (first * 1.0).sum().backward()
    if hvd.rank() == 0:
        while not hvd.poll(optimizer._horovod._buckets[0].handle):
            time.sleep(0.001)
        (second * 1.0).sum().backward()
        with interrupted_soon():
            optimizer.synchronize()
    hvd.barrier()
    if hvd.rank() != 0:
        (second * 1.0).sum().backward()
    optimizer.synchronize()
    assert (value(first), value(second)) == (hvd.size(), hvd.size())
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.zero_grad()
    (first.sum() + second.sum()).mul(2.0).backward()
    optimizer.step()
    assert (value(first), value(second)) == (2 * hvd.size(), 2 * hvd.size())


def check_an_error_before_an_interrupt_is_not_lost() -> None:
    first, second, optimizer = two_parameters()
    if hvd.rank() == 0:
        first.data = torch.zeros(LARGE + 1)
    first.sum().backward()
    if hvd.rank() == 0:
        second.sum().backward()
        while not hvd.poll(optimizer._horovod._buckets[0].handle):
            time.sleep(0.001)
        with interrupted_soon():
            optimizer.synchronize()
    hvd.barrier()
    if hvd.rank() != 0:
        second.sum().backward()
    with raises(hvd.HorovodInternalError, "first"):
        optimizer.synchronize()
    assert value(second) == hvd.size()


def check_an_interrupt_while_a_sparse_gradient_is_gathered() -> None:
    embedding = nn.Embedding(hvd.size(), 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(embedding.parameters(), lr=1.0), embedding.named_parameters()
    )
    if hvd.rank() == 0:
        embedding(torch.tensor([0])).sum().backward()
        with interrupted_soon():
            optimizer.synchronize()
    hvd.barrier()
    if hvd.rank() != 0:
        embedding(torch.tensor([hvd.rank()])).sum().backward()
    optimizer.synchronize()
    assert embedding.weight.grad is not None
    assert torch.allclose(embedding.weight.grad.to_dense(), torch.full((hvd.size(), 2), 1 / hvd.size()))
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.zero_grad()


def check_an_interrupt_once_the_ranks_have_agreed() -> None:
    """Which gradients are sparse they ask each other once per step; the zeros that this one has sent since
    tell nothing about that.
    """
    first, late = nn.Parameter(torch.zeros(2)), nn.Embedding(3, 2, sparse=True)
    named = [("first", first), ("late", late.weight)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([first, late.weight], lr=1.0), named)
    first.sum().backward()
    if hvd.rank() == 0:

        def interrupted(_: object) -> None:
            raise InterruptError

        optimizer._horovod._land = interrupted
        with raises(InterruptError):
            optimizer.synchronize()
        del optimizer._horovod._land
    optimizer.step()
    optimizer.zero_grad()
    rows = late(torch.tensor([1])) if hvd.rank() == 0 else torch.ones(1, 2)
    (first * rows).sum().backward()
    optimizer.step()
    assert late.weight.grad is not None and late.weight.grad.is_sparse
    optimizer.zero_grad()


def check_load_state_dict_while_gradients_travel() -> None:
    """The next ones have the same names, which are taken until the given up ones have landed."""
    first, second, optimizer = two_parameters()
    saved = optimizer.state_dict()
    if hvd.rank() != 0:
        time.sleep(0.5)
    first.sum().backward()
    optimizer.load_state_dict(saved)
    first.grad = None
    (first * (hvd.rank() + 1)).sum().backward()
    optimizer.step()
    assert value(first) == total(lambda rank: rank + 1) and value(second) == 0


def check_another_world_while_gradients_travel() -> None:
    """They were not combined before hvd.shutdown(), so they are in the next world."""
    first, second, optimizer = two_parameters()
    if hvd.rank() == 0:
        (first * 4.0).sum().backward()
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    if hvd.rank() != 0:
        (first * 2.0).sum().backward()
    optimizer.step()
    assert value(first) == 4.0 + 2.0 * (hvd.size() - 1) and value(second) == 0
