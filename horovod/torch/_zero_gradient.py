"""A gradient for a parameter that has none."""

from __future__ import annotations

import torch


def zero_gradient(parameter: torch.Tensor, sparse_dim: int) -> torch.Tensor:
    """Zeros; a sparse tensor without entries unless `sparse_dim` is 0."""
    if not sparse_dim:
        return torch.zeros_like(parameter, requires_grad=False)
    indices = torch.empty((sparse_dim, 0), dtype=torch.int64, device=parameter.device)
    values = torch.empty((0, *parameter.shape[sparse_dim:]), dtype=parameter.dtype, device=parameter.device)
    return torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)
