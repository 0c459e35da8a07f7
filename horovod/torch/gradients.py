"""The blocking collectives with their gradients.

A collective runs directly unless a gradient is asked for. The gradients are collectives, too, so
all ranks must compute them; they are themselves differentiable. Their names are the operation's
with `.grad` at the end, so a named operation is matched by name also on the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from horovod.common.basics import Average, Sum, rank
from horovod.common.collectives import BlockingCollectives
from horovod.common.handles import table
from horovod.common.process_sets import ProcessSet
from horovod.torch.adapter import collectives

# A list of tensors is a group (the result is a tuple), or has a single one (the result is that).
Tensors = Sequence[Tensor]


class _Reduction(NamedTuple):
    """What BlockingCollectives takes beside the tensors."""

    name: str | None
    op: int
    prescale: float
    postscale: float
    process_set: ProcessSet
    grouped: bool


class Differentiable(BlockingCollectives[Tensor]):
    """The blocking collectives, with their gradients where they are asked for."""

    def allreduce(self, tensors: Tensors, /, *how: Any) -> Any:
        """Gradient: the same reduction of the gradients."""
        if not _tracked(tensors):
            return super().allreduce(tensors, *how)
        return _apply(_Allreduce, _Reduction(*how), tensors)

    def allgather(self, tensors: Tensors, name: str | None, process_set: ProcessSet, grouped: bool) -> Any:
        """Gradient: this rank's rows of the average of all ranks' gradients."""
        if not _tracked(tensors):
            return super().allgather(tensors, name, process_set, grouped)
        return _apply(_Allgather, _Reduction(name, Average, 1.0, 1.0, process_set, grouped), tensors)

    def reducescatter(self, tensors: Tensors, /, *how: Any) -> Any:
        """Gradient: all ranks' rows, times the number of ranks for Sum, times the factors."""
        if not _tracked(tensors):
            return super().reducescatter(tensors, *how)
        return _apply(_Reducescatter, _Reduction(*how), tensors)

    def broadcast(self, tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Tensor:
        """Gradient: the average of all ranks' gradients on the root, zero elsewhere."""
        if not _tracked((tensor,)):
            return super().broadcast(tensor, root_rank, name, process_set)
        result: Tensor = _Broadcast.apply(tensor, root_rank, name, process_set)  # type: ignore[no-untyped-call]
        return result

    def alltoall(
        self, tensor: Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> tuple[Tensor, Tensor]:
        """Gradient: the rows go back where they came from."""
        if not _tracked((tensor,)):
            return super().alltoall(tensor, splits, name, process_set)
        result: tuple[Tensor, Tensor]
        result = _Alltoall.apply(tensor, splits, name, process_set)  # type: ignore[no-untyped-call]
        return result


_plain = BlockingCollectives(collectives)
differentiable = Differentiable(collectives)


def _tracked(tensors: Tensors) -> bool:
    return torch.is_grad_enabled() and any([tensor.requires_grad for tensor in tensors])


def _apply(function: type[Function], how: _Reduction, tensors: Tensors) -> Any:
    return function.apply(how, *tensors)  # type: ignore[no-untyped-call]


def _name_of_gradient(name: str | None) -> str | None:
    return None if name is None else f"{name}.grad"


class _Grouped:
    """What the gradients of a group have in common: which of its tensors have one.

    That is decided by dtype, which is the same on all ranks: requires_grad need not be.
    """

    def __init__(self, how: _Reduction, tensors: Tensors) -> None:
        self.how = how._replace(name=_name_of_gradient(how.name))
        self.count = len(tensors)
        self.members = [i for i, t in enumerate(tensors) if t.is_floating_point() or t.is_complex()]

    def of(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        return [gradients[i] for i in self.members]

    def as_list(self, results: Any) -> list[Tensor]:
        return list(results) if self.how.grouped else [results]

    def returned(self, gradients: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """What backward() returns: None for `how` and for tensors that have no gradient."""
        results: list[Tensor | None] = [None] * (self.count + 1)
        for i, gradient in zip(self.members, gradients, strict=True):
            results[i + 1] = gradient
        return tuple(results)


class _Allreduce(Function):
    @staticmethod
    def forward(ctx: Any, how: _Reduction, *tensors: Tensor) -> Any:
        ctx.group = _Grouped(how, tensors)
        return _plain.allreduce(tensors, *how)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        group: _Grouped = ctx.group
        return group.returned(group.as_list(differentiable.allreduce(group.of(gradients), *group.how)))


class _Allgather(Function):
    @staticmethod
    def forward(ctx: Any, how: _Reduction, *tensors: Tensor) -> Any:
        results = _plain.allgather(tensors, how.name, how.process_set, how.grouped)
        ctx.group = _Grouped(how, tensors)
        ctx.rows = [tensors[i].shape[0] for i in ctx.group.members]
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        group: _Grouped = ctx.group
        name, _, _, _, process_set, _ = group.how
        # The other ranks' rows are known only to them; this runs while the gradients are reduced.
        rows = torch.tensor([ctx.rows], device="cpu")
        handle = collectives.allgather([rows], None if name is None else f"{name}.rows", process_set)
        reduced = group.as_list(differentiable.allreduce(group.of(gradients), *group.how))
        before = table.synchronize(handle)[: process_set.rank()].sum(dim=0).tolist()
        return group.returned(
            [
                gradient.narrow(0, start, rows)
                for gradient, start, rows in zip(reduced, before, ctx.rows, strict=True)
            ]
        )


class _Reducescatter(Function):
    @staticmethod
    def forward(ctx: Any, how: _Reduction, *tensors: Tensor) -> Any:
        ctx.group = _Grouped(how, tensors)
        return _plain.reducescatter(tensors, *how)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        group: _Grouped = ctx.group
        name, op, prescale, postscale, process_set, grouped = group.how
        factor = prescale * postscale
        if op == Sum:
            factor *= process_set.size() or 1
        own = group.of(gradients)
        if factor != 1.0:
            own = [gradient * factor for gradient in own]
        return group.returned(group.as_list(differentiable.allgather(own, name, process_set, grouped)))


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
        ctx.root_rank, ctx.name, ctx.process_set = root_rank, _name_of_gradient(name), process_set
        return _plain.broadcast(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        reduced = differentiable.allreduce(gradients, ctx.name, Average, 1.0, 1.0, ctx.process_set, False)
        if rank() != ctx.root_rank:
            # Not a new tensor: a gradient of this gradient must be the same collective on all
            # ranks.
            reduced = reduced.masked_fill(torch.ones((), dtype=torch.bool, device=reduced.device), 0)
        return reduced, None, None, None


class _Alltoall(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, splits: Any, name: str | None, process_set: ProcessSet) -> Any:
        output, received = _plain.alltoall(tensor, splits, name, process_set)
        ctx.mark_non_differentiable(received)
        ctx.rows, ctx.received = tensor.shape[0], received
        ctx.name, ctx.process_set = _name_of_gradient(name), process_set
        return output, received

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        back, _ = differentiable.alltoall(gradients[0], ctx.received, ctx.name, ctx.process_set)
        if unsent := ctx.rows - back.shape[0]:
            back = torch.cat([back, back.new_zeros(unsent, *back.shape[1:])])
        return back, None, None, None
