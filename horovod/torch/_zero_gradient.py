"""A gradient for a parameter that has none."""

from __future__ import annotations

from typing import Any

import torch


def zero_gradient(parameter: torch.Tensor, sparse_dim: int) -> torch.Tensor:
    """Zeros; a sparse tensor without entries unless `sparse_dim` is 0."""
    if not sparse_dim:
        zeros = torch.zeros_like(parameter, requires_grad=False)
        _mark(zeros, True)
        return zeros
    indices = torch.empty((sparse_dim, 0), dtype=torch.int64, device=parameter.device)
    values = torch.empty((0, *parameter.shape[sparse_dim:]), dtype=parameter.dtype, device=parameter.device)
    return torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)


def is_filler(gradient: torch.Tensor) -> bool:
    """Whether it is dense only because it was made here: autograd has added to it since, at most."""
    return bool(getattr(gradient, "_horovod_filler", False))


def keep(filler: torch.Tensor) -> None:
    """Autograd will go on to add to it, so that the gradient is dense from now on."""
    _mark(filler, False)


def _mark(gradient: Any, made_here: bool) -> None:
    gradient._horovod_filler = made_here
