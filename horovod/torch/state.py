"""The root's optimizer state on all ranks.

The root describes its state: options as they are, tensors by shape and dtype. The other ranks make
room for the tensors, and then these are broadcast in place. So no rank has to run a step in order
to have a state, which would advance step counters and decay weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Embedding, EmbeddingBag, Module
from torch.optim import LBFGS, Optimizer, SparseAdam

from horovod.common.basics import rank
from horovod.common.objects import allgather_object, broadcast_object
from horovod.torch._all_at_once import synchronize_all
from horovod.torch._zero_gradient import zero_gradient
from horovod.torch.ops import broadcast_async_


class _TensorLike(NamedTuple):
    """Stands for a tensor of the root. One that is not beside its parameter is on the CPU."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    beside_parameter: bool


class _Description(NamedTuple):
    """An optimizer's options by group, its state by number
    of the parameter, and what has another key."""

    options: list[Any]
    state: dict[int, Any]
    others: dict[Any, Any]


def broadcast_optimizer_state(optimizer: Optimizer, root_rank: int, model: Module | None = None) -> None:
    """Gives the optimizers of all ranks the state and the options (learning rate, ...) of the
    root's.

    Parameters stay as they are, and so do gradients; but if the root's state is empty, parameters
    without a gradient get one of zeros, which programs rely on. It is sparse for SparseAdam, and
    for the embeddings of `model` that have sparse gradients. The optimizers must have the same
    parameters on all ranks; plain and distributed ones work. ValueError for LBFGS.
    """
    if isinstance(optimizer, LBFGS):
        raise ValueError("the state of torch.optim.LBFGS can't be broadcast; use another optimizer")
    _check_same_parameters(optimizer, root_rank)
    tensors: list[Tensor] = []
    description: _Description
    if rank() == root_rank:
        description = _describe(optimizer, tensors)
        broadcast_object(description, root_rank)
    else:
        description = broadcast_object(None, root_rank)
        _adopt(optimizer, description, tensors)
    synchronize_all(
        broadcast_async_(tensor, root_rank, f"optimizer_state.{number}")
        for number, tensor in enumerate(tensors)
    )
    # The root decides: a gradient may be dense or sparse, but not by rank.
    if not description.state and not description.others:
        _fill_in_gradients(optimizer, model)


def _fill_in_gradients(optimizer: Optimizer, model: Module | None) -> None:
    """Zeros for parameters without a gradient: those of the
    empty step that once was necessary here."""
    embeddings = [m for m in model.modules() if isinstance(m, Embedding | EmbeddingBag)] if model else []
    sparse = {embedding.weight for embedding in embeddings if embedding.sparse}
    for parameter in _parameters(optimizer):
        if parameter.requires_grad and parameter.grad is None:
            is_sparse = isinstance(optimizer, SparseAdam) or parameter in sparse
            parameter.grad = zero_gradient(parameter, 1 if is_sparse else 0)


def _check_same_parameters(optimizer: Optimizer, root_rank: int) -> None:
    shapes = allgather_object(
        [[tuple(parameter.shape) for parameter in group["params"]] for group in optimizer.param_groups]
    )
    if not 0 <= root_rank < len(shapes):
        raise ValueError(f"root_rank {root_rank} does not exist, there are {len(shapes)} ranks")
    # Every rank finds the same difference, so none is left waiting for the others.
    for number, other in enumerate(shapes):
        if other != shapes[root_rank]:
            raise ValueError(
                f"the optimizer of rank {number} has other parameters than that of rank {root_rank}: their "
                f"shapes by group are {other} and {shapes[root_rank]}; make them from the same model"
            )


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _describe(optimizer: Optimizer, tensors: list[Tensor]) -> _Description:
    """Adds the tensors to the list in the order in which _adopt() does."""
    parameters = _parameters(optimizer)
    options = [
        _described({key: value for key, value in group.items() if key != "params"}, None, tensors)
        for group in optimizer.param_groups
    ]
    state = {
        number: _described(optimizer.state[parameter], parameter, tensors)
        for number, parameter in enumerate(parameters)
        if parameter in optimizer.state
    }
    others = {
        key: _described(value, None, tensors)
        for key, value in optimizer.state.items()
        if not isinstance(key, Tensor)
    }
    return _Description(options, state, others)


def _adopt(optimizer: Optimizer, description: _Description, tensors: list[Tensor]) -> None:
    for group, options in zip(optimizer.param_groups, description.options, strict=True):
        group.update(_adopted(options, group, None, tensors))
    parameters = _parameters(optimizer)
    before = dict(optimizer.state)
    optimizer.state.clear()
    for number, state in description.state.items():
        parameter = parameters[number]
        optimizer.state[parameter] = _adopted(state, before.get(parameter), parameter, tensors)
    for key, state in description.others.items():
        optimizer.state[key] = _adopted(state, before.get(key), None, tensors)


def _is_dense(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided


def _described(value: Any, parameter: Tensor | None, tensors: list[Tensor]) -> Any:
    """`value` with its dense tensors, also within containers, replaced by what stands for them."""
    if _is_dense(value):
        tensors.append(value)
        beside = parameter is not None and value.device == parameter.device
        return _TensorLike(tuple(value.shape), value.dtype, beside)
    if type(value) is dict:
        return {key: _described(item, parameter, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_described(item, parameter, tensors) for item in value])
    return value


def _adopted(described: Any, local: Any, parameter: Tensor | None, tensors: list[Tensor]) -> Any:
    """The reverse.

    Tensors of the `local` value that fit are kept: other objects may refer to them.
    """
    if isinstance(described, _TensorLike):
        if not _fits(local, described):
            local = _empty(described, parameter)
        tensors.append(local)
        return local
    if type(described) is dict:
        known = local if isinstance(local, dict) else {}
        return {key: _adopted(item, known.get(key), parameter, tensors) for key, item in described.items()}
    if type(described) in (list, tuple):
        same = type(local) is type(described) and len(local) == len(described)
        old = local if same else [None] * len(described)
        return type(described)(
            [_adopted(item, known, parameter, tensors) for item, known in zip(described, old, strict=True)]
        )
    return described


def _fits(local: Any, described: _TensorLike) -> bool:
    return _is_dense(local) and tuple(local.shape) == described.shape and bool(local.dtype == described.dtype)


def _empty(described: _TensorLike, parameter: Tensor | None) -> Tensor:
    if parameter is None or not described.beside_parameter:
        return torch.empty(described.shape, dtype=described.dtype, device="cpu")
    if described.shape == tuple(parameter.shape):
        # With the parameter's memory format, as the optimizer itself would make it.
        return torch.empty_like(parameter, dtype=described.dtype, requires_grad=False)
    return torch.empty(described.shape, dtype=described.dtype, device=parameter.device)
