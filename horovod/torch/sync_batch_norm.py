"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.common.basics import Sum, size
from horovod.torch.ops import allgather, allreduce
from horovod.torch.uncompiled import uncompiled


class SyncBatchNorm(_BatchNorm):
    """Like torch.nn.BatchNorm, with mean and variance of the batches of all ranks while training.

    The batches may differ in size. Inputs have shape (N, C, ...), on any device. With one rank, and
    in evaluation mode, it is plain batch normalization. Gradients of weight and bias are those of
    this rank's batch: the optimizer reduces them.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected an input of shape (N, C, ...), got {input.dim()} dimensions")
        if input.shape[1] != self.num_features:
            raise ValueError(f"expected {self.num_features} channels, got an input with {input.shape[1]}")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if not self.training or size() == 1:
            return super().forward(input)
        momentum = self.momentum
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if momentum is None:  # a cumulative average
                momentum = 1.0 / float(self.num_batches_tracked)
        return _normalized(
            input, self.weight, self.bias, self.running_mean, self.running_var, self.eps, momentum or 0.0
        )


@uncompiled
def _normalized(*args: Any) -> Tensor:
    output: Tensor = _Normalize.apply(*args)  # type: ignore[no-untyped-call]
    return output


def _compute_type(input: Tensor) -> torch.dtype:
    return torch.float64 if input.dtype is torch.float64 else torch.float32


def _dims(input: Tensor) -> list[int]:
    """All dimensions but that of the channels."""
    return [0, *range(2, input.dim())]


def _per_channel(values: Tensor, input: Tensor) -> Tensor:
    return values.reshape([-1 if dim == 1 else 1 for dim in range(input.dim())])


def _moments(input: Tensor) -> tuple[Tensor, Tensor, int]:
    """Mean and variance (biased) by channel, and the number of values by channel, over all ranks.

    In float64, as the ranks' deviations are combined about their common mean.
    """
    channels = input.shape[1]
    count = input.numel() // channels
    if count:
        variance, mean = torch.var_mean(input.to(_compute_type(input)), _dims(input), correction=0)
    else:
        variance = mean = input.new_zeros(channels)
    own = torch.cat([mean.double(), variance.double(), mean.new_tensor([count], dtype=torch.float64)])
    ranks = allgather(own[None], name=f"sync_batch_norm.{channels}.statistics")
    means, variances, counts = ranks[:, :channels], ranks[:, channels:-1], ranks[:, -1:]
    total = int(counts.sum())
    if total < 2:
        raise ValueError(f"expected more than 1 value per channel over all ranks when training, got {total}")
    mean = (means * counts).sum(0) / total
    variance = ((variances + (means - mean) ** 2) * counts).sum(0) / total
    return mean, variance, total


class _Normalize(Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        eps: float,
        momentum: float,
    ) -> Tensor:
        mean, variance, total = _moments(input)
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((variance * (total / (total - 1))).to(running_var.dtype), momentum)
        kind = _compute_type(input)
        mean, inverse = mean.to(kind), (variance + eps).rsqrt().to(kind)
        ctx.save_for_backward(input, weight, mean, inverse)
        ctx.total = total
        return torch.batch_norm(
            input,
            None if weight is None else weight.to(kind),
            None if bias is None else bias.to(kind),
            mean,
            variance.to(kind),
            training=False,
            momentum=0.0,
            eps=eps,
            cudnn_enabled=False,
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        input, weight, mean, inverse = ctx.saved_tensors
        kind = mean.dtype
        gradient = gradients[0].to(kind)
        normalized = (input.to(kind) - _per_channel(mean, input)) * _per_channel(inverse, input)
        of_bias = gradient.sum(_dims(input))
        of_weight = (gradient * normalized).sum(_dims(input))
        of_input = None
        # All ranks take part, also one whose input needs no gradient.
        everyone = allreduce(
            torch.stack([of_bias, of_weight]), op=Sum, name=f"sync_batch_norm.{len(mean)}.gradients"
        )
        if ctx.needs_input_grad[0]:
            through_mean, through_variance = everyone / ctx.total
            scale = inverse if weight is None else inverse * weight.to(kind)
            of_input = (
                gradient
                - _per_channel(through_mean, input)
                - normalized * _per_channel(through_variance, input)
            )
            of_input = (of_input * _per_channel(scale, input)).to(input.dtype)
        return (
            of_input,
            of_weight.to(weight.dtype) if ctx.needs_input_grad[1] else None,
            of_bias.to(weight.dtype) if ctx.needs_input_grad[2] else None,
            None,
            None,
            None,
            None,
        )
