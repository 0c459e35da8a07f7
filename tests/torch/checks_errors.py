"""Mistakes with torch tensors: each raises the right error, and the engine goes on. Two ranks or more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from util_expect import raises, refused_splits

import horovod.torch as hvd


def still_works() -> None:
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3


def disagree(name: str, call: Callable[[bool], Any], *texts: str) -> None:
    """`call` with True on rank 0 and False elsewhere must fail on all ranks with the same text."""
    with raises(hvd.HorovodInternalError, name, *texts):
        call(hvd.rank() == 0)
    still_works()


def check_ranks_disagree() -> None:
    ones = torch.ones
    disagree("shape", lambda odd: hvd.allreduce(ones(3 if odd else 4), name="shape"), "[3]", "[4]")
    disagree(
        "type",
        lambda odd: hvd.allreduce_(ones(3, dtype=torch.float16 if odd else torch.bfloat16), name="type"),
        "float16",
        "bfloat16",
    )
    disagree("op", lambda odd: hvd.allreduce(ones(3), name="op", op=hvd.Sum if odd else hvd.Max), "Sum")
    disagree("pre", lambda odd: hvd.allreduce(ones(3), name="pre", prescale_factor=2.0 if odd else 1.0))
    disagree("root", lambda odd: hvd.broadcast(ones(3), 0 if odd else 1, name="root"), "0", "1")
    disagree("trailing", lambda odd: hvd.allgather(ones(3, 2 if odd else 4), name="trailing"), "[3, 2]")
    disagree("dot", lambda odd: hvd.allgather(torch.tensor(1.0), name="dot"))
    disagree("members", lambda odd: hvd.grouped_allreduce([ones(2)] * (2 if odd else 3), name="members"))
    for op in (hvd.Min, hvd.Adasum):
        disagree("least", lambda odd, op=op: hvd.reducescatter(ones(4), name="least", op=op), "reducescatter")


def check_error_comes_at_synchronize() -> None:
    handle = hvd.allreduce_async(torch.ones(3 + (hvd.rank() == 0)), name="later")
    with raises(hvd.HorovodInternalError, "later"):
        hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None
    # With a gradient too.
    with raises(hvd.HorovodInternalError, "tracked"):
        hvd.allreduce(torch.ones(3 + (hvd.rank() == 0), requires_grad=True), name="tracked")
    still_works()


def check_unsupported_tensors() -> None:
    for dtype in (torch.float8_e4m3fn, torch.uint32):
        tensor = torch.zeros(2, dtype=dtype)
        for call in (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.alltoall, hvd.reducescatter):
            with raises(ValueError, str(dtype), "torch.float32"):
                call(tensor)  # type: ignore[operator]
        with raises(ValueError, str(dtype)):
            hvd.grouped_allreduce([torch.ones(2), tensor])
    for call in (hvd.allreduce, hvd.allreduce_, hvd.allgather):
        with raises(ValueError, "'meta'", "cuda"):
            call(torch.ones(2, device="meta"))  # type: ignore[operator]
    for wrong in (1.0, [1.0], None):
        with raises(ValueError, "torch tensor"):
            hvd.allreduce(wrong)  # type: ignore[arg-type]
        with raises(ValueError, "torch tensor"):
            hvd.allreduce_(wrong)  # type: ignore[arg-type]
    with raises(ValueError, "op must be"):
        hvd.allreduce(torch.ones(1), op=17)
    still_works()


def check_bad_splits() -> None:
    size = hvd.size()
    kinds = [torch.ones((size, 1), dtype=torch.int32), torch.ones(size, dtype=torch.int64), torch.ones(size)]
    lists = [[1] * (size + 1), [size] * size, [-1] * size, ["a"] * size]
    refused_splits(hvd, torch.ones(size, 2), [*lists, *kinds], uneven=torch.ones(size + 1))


def check_bad_roots_and_sets() -> None:
    for root in (-1, hvd.size()):
        with raises(ValueError, str(root)):
            hvd.broadcast_(torch.ones(1), root)
    with raises(ValueError, "not registered"):
        hvd.allreduce(torch.ones(1), process_set=hvd.ProcessSet([0]))
    still_works()


def check_not_initialized() -> None:
    hvd.shutdown()
    with raises(ValueError, "hvd.init()"):
        hvd.rank()
    for call in (
        lambda: hvd.allreduce(torch.ones(1)),
        lambda: hvd.allreduce(torch.ones(1, requires_grad=True)),
        lambda: hvd.broadcast_parameters([torch.ones(1)], 0),
        hvd.join,
    ):
        with raises(hvd.HorovodInternalError, "hvd.init()"):
            call()
    hvd.init()
    still_works()


def check_an_optimizer_between_two_worlds() -> None:
    """It must not take the time without ranks for one of training alone, and then go on so."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("weight", weight)])

    def step() -> None:
        optimizer.zero_grad()
        (weight * (hvd.rank() + 1 if hvd.is_initialized() else 1)).sum().backward()
        optimizer.step()

    step()
    hvd.shutdown()
    with raises(hvd.HorovodInternalError, "hvd.init()"):
        step()
    hvd.init()
    step()
    assert weight.item() == -(hvd.size() + 1)
