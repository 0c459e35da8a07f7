"""Tensors of a device that the engine can't reach. There is none here, so a subclass stands for one: it is on
torch's meta device, which has no memory, and only copies to and from it work. Two ranks or more."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import horovod.torch as hvd
from horovod.common.collectives import Collectives
from horovod.common.handles import table
from horovod.torch.adapter import TorchAdapter

collectives: Collectives[Tensor] = Collectives(TorchAdapter(frozenset({"meta"})))
everyone = hvd.global_process_set


class OnDevice(torch.Tensor):
    """Any use other than those that staging needs is an error."""

    content: Tensor

    @staticmethod
    def __new__(cls, content: Tensor) -> OnDevice:
        made = torch.Tensor._make_wrapper_subclass(
            cls, content.shape, strides=content.stride(), dtype=content.dtype, device="meta"
        )
        made.content = content  # type: ignore[attr-defined]
        return made  # type: ignore[return-value]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket._qualified_op_name
        if name == "aten::copy_":
            target, source = args[0], args[1]
            (target.content if isinstance(target, cls) else target).copy_(
                source.content if isinstance(source, cls) else source
            )
            return target
        if name == "aten::new_empty":
            return cls(args[0].content.new_empty(args[1]))
        if name == "aten::detach":
            return cls(args[0].content)
        raise AssertionError(f"{name} on the device")


def content(tensor: Any) -> list[Any]:
    assert isinstance(tensor, OnDevice)
    return tensor.content.tolist()  # type: ignore[no-any-return]


def mine(*shape: int) -> OnDevice:
    return OnDevice(torch.full(shape, hvd.rank() + 1.0))


def check_same_shape() -> None:
    total = float(sum(range(1, hvd.size() + 1)))
    tensor = mine(3)
    result = table.synchronize(collectives.allreduce([tensor], None, hvd.Sum, 1.0, 1.0, everyone))
    assert content(result) == [total] * 3 and content(tensor) == [hvd.rank() + 1.0] * 3
    handle = collectives.allreduce([tensor], None, hvd.Sum, 1.0, 1.0, everyone, in_place=True)
    assert table.synchronize(handle) is tensor and content(tensor) == [total] * 3
    group = [mine(2), mine(1).content, OnDevice(torch.full((2, 3), 2.0).t())]
    results = table.synchronize(
        collectives.allreduce(group, "staged group", hvd.Sum, 1.0, 1.0, everyone, grouped=True)
    )
    assert content(results[0]) == [total] * 2 and content(results[2]) == [[2.0 * hvd.size()] * 2] * 3
    assert type(results[1]) is Tensor and results[1].tolist() == [total]
    assert content(table.synchronize(collectives.broadcast(mine(2), 1, None, everyone))) == [2, 2]


def check_engine_shape() -> None:
    result = table.synchronize(collectives.allgather([mine(1)], None, everyone))
    assert content(result) == [rank + 1.0 for rank in range(hvd.size())]
    result = table.synchronize(
        collectives.reducescatter([mine(hvd.size())], None, hvd.Average, 1.0, 1.0, everyone)
    )
    assert content(result) == [(hvd.size() + 1) / 2]
    output, received = table.synchronize(collectives.alltoall(mine(hvd.size()), None, None, everyone))
    assert content(output) == [rank + 1.0 for rank in range(hvd.size())]
    assert received.tolist() == [1] * hvd.size()
