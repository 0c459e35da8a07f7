"""DistributedOptimizer with parameters of every kind: frozen, shared, sparse, of any layout and dtype."""

from __future__ import annotations

from typing import Any

import torch
from optimizer_util import assert_same_on_all_ranks, backward, total
from torch import nn
from util_expect import raises

import horovod.torch as hvd


def check_frozen_and_added_parameters() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    for tensor in model.state_dict().values():
        tensor.fill_(1)
    model[0].requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5), model.named_parameters()
    )
    backward(model)
    optimizer.step()
    assert model[0].weight.grad is None
    model[0].requires_grad_(True)  # fine-tuning begins
    model[1].requires_grad_(False)
    for _ in range(2):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
    assert model[1].weight.grad is None and model[0].weight.grad is not None
    late = nn.Linear(3, 2)
    hvd.broadcast_parameters(late.state_dict(), 0)
    optimizer.add_param_group({"params": late.parameters()})
    optimizer.zero_grad()
    backward(late)
    optimizer.step()
    assert late.bias.grad is not None and late.bias.grad.tolist() == [1.0, 1.0]
    for each in (model, late):
        assert_same_on_all_ranks(each)


def check_unfrozen_group_members() -> None:
    """Between zero_grad() and backward(), when the gradients that a group waits for are counted already."""
    width = 400
    inputs = torch.full((1, width), hvd.rank() + 1.0)
    expected = width * total(lambda r: r + 1) / hvd.size()
    for before in (0, 1):  # steps with the member, which has a hook after the first
        for late in (0, 1):  # its gradient comes after the other's, or before it
            # Large enough to be sent at once
            model = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(2)])
            for tensor in model.state_dict().values():
                tensor.fill_(1)
            member = model[late].weight
            member.requires_grad_(before == 1)
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), lr=0.0), model.named_parameters(), groups=1
            )
            for _ in range(2):
                model(inputs).sum().backward()
                optimizer.step()
                member.requires_grad_(False)
                optimizer.zero_grad()
            member.requires_grad_(True)
            for _ in range(2):
                model(inputs).sum().backward()
                optimizer.step()
                for layer in model:
                    assert (layer.weight.grad == expected).all(), (before, late, layer.weight.grad)
                optimizer.zero_grad()


def check_shared_parameters() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    hvd.broadcast_parameters(model.state_dict(), 0)
    names = list(model.named_parameters(remove_duplicate=False))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5), names)
    for _ in range(2):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
    assert_same_on_all_ranks(model)


def check_layouts_and_dtypes() -> None:
    base = {
        "float64": nn.Parameter(torch.ones(3, dtype=torch.float64)),
        "bfloat16": nn.Parameter(torch.ones(3, dtype=torch.bfloat16)),
        "float16": nn.Parameter(torch.ones(2, 2, dtype=torch.float16)),
        "complex64": nn.Parameter(torch.ones(2, dtype=torch.complex64)),
        "channels_last": nn.Parameter(torch.ones(2, 3, 2, 2).to(memory_format=torch.channels_last)),
        "transposed": nn.Parameter(torch.ones(4, 3).t()),
        "scalar": nn.Parameter(torch.tensor(1.0)),
        "empty": nn.Parameter(torch.ones(0, 3)),
    }
    for groups in (None, 2):
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(base.values(), lr=1.0), base.items(), groups=groups
        )
        loss = sum((parameter * (hvd.rank() + 1)).sum().real.double() for parameter in base.values())
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        strides = {
            name: parameter.grad.stride() for name, parameter in base.items() if parameter.grad is not None
        }
        optimizer.synchronize()
        for name, parameter in base.items():
            assert parameter.grad is not None and parameter.grad.dtype == parameter.dtype, name
            assert parameter.grad.stride() == strides[name], name
            assert torch.allclose(
                parameter.grad.to(torch.complex128),
                torch.tensor((hvd.size() + 1) / 2 + 0j, dtype=torch.complex128),
            ), name
        assert not base["channels_last"].grad.is_contiguous()  # type: ignore[union-attr]
        optimizer.zero_grad()


def embedding(**arguments: Any) -> tuple[nn.Embedding, Any]:
    torch.manual_seed(2)
    model = nn.Embedding(5 * hvd.size(), 2, sparse=True)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.1)
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters(), **arguments)


def check_sparse_gradients() -> None:
    for arguments in ({}, {"sparse_as_dense": True}, {"op": hvd.Sum}, {"backward_passes_per_step": 2}):
        model, optimizer = embedding(**arguments)
        for step in range(3):
            optimizer.zero_grad()
            for part in range(arguments.get("backward_passes_per_step", 1)):  # type: ignore[call-overload]
                rows = torch.tensor([0, hvd.rank() + 1 + part])
                if step < 2 or hvd.rank() == 0:  # later only rank 0 has a gradient
                    model(rows).sum().backward()
            optimizer.step()
            gradient = model.weight.grad
            assert gradient is not None and gradient.is_sparse and gradient.sparse_dim() == 1
            if step < 2 and len(arguments) == 0:
                dense = gradient.to_dense()
                assert torch.allclose(dense[:2], torch.tensor([[1.0, 1.0], [1 / hvd.size()] * 2]))
                assert gradient._nnz() == 2 * hvd.size()
        assert_same_on_all_ranks(model)


def check_one_rank_has_a_sparse_gradient() -> None:
    """The others can't know that it is sparse, as they have never had one."""
    first = torch.tensor([0, 1])
    every: tuple[dict[str, Any], ...] = (
        {},
        {"sparse_as_dense": True},
        {"sparse_as_dense": True, "groups": 1},
    )
    for arguments in every:
        model, optimizer = embedding(**arguments)
        if hvd.rank() == hvd.size() - 1:
            model(first).sum().backward()
        optimizer.step()
        gradient = model.weight.grad
        assert gradient is not None and gradient.is_sparse
        assert torch.allclose(gradient.to_dense()[:2], torch.tensor(1 / hvd.size()))
        assert_same_on_all_ranks(model)


def check_a_sparse_gradient_comes_late() -> None:
    """In the first step no rank has one, in the next ones another each."""
    torch.manual_seed(2)
    linear, late = nn.Linear(2, 2), nn.Embedding(3, 2, sparse=True)
    frozen = nn.Embedding(3, 2).requires_grad_(False)
    model = nn.ModuleList([linear, late, frozen])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    for step in range(3):
        optimizer.zero_grad()
        rows = late(torch.tensor([2])) if step == hvd.rank() + 1 else torch.ones(1, 2)
        linear(rows).sum().backward()
        optimizer.step()
        gradient = late.weight.grad
        assert gradient is not None and gradient.is_sparse == (step > 0)
        assert bool(gradient.to_dense().any()) == (step > 0)
        assert_same_on_all_ranks(model)


def check_zeros_of_the_library_are_no_dense_gradient() -> None:
    """Neither those that broadcast_optimizer_state() makes nor those of the step before."""
    for to_none in (True, False):
        torch.manual_seed(2)
        model = nn.ModuleDict({"linear": nn.Linear(2, 2), "late": nn.Embedding(3, 2, sparse=True)})
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
        hvd.broadcast_optimizer_state(optimizer, 0)
        late: Any = model["late"]
        for step in range(3):
            rows = late(torch.tensor([2])) if step in (0, hvd.rank() + 1) else torch.ones(1, 2)
            model["linear"](rows).sum().backward()
            optimizer.step()
            gradient = late.weight.grad
            assert gradient is not None and gradient.is_sparse == (to_none and step > 0)
            assert bool(gradient.to_dense().any())
            assert_same_on_all_ranks(model)
            optimizer.zero_grad(set_to_none=to_none)
        assert not optimizer._horovod._kinds._unknown


def check_a_gradient_that_is_sparse_on_some_ranks() -> None:
    model = nn.Embedding(3, 2)
    named = [("differs", model.weight)]
    optimizer: Any = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), named)
    loss: Any = nn.functional.embedding(torch.tensor([0]), model.weight, sparse=hvd.rank() == 0).sum()
    loss.backward()
    with raises(hvd.HorovodInternalError, "sparse on some ranks"):
        optimizer.step()
    if hvd.rank() != 0:  # what rank 0 has sent, nobody else would answer
        hvd.sparse_allreduce_async(torch.zeros(3, 2).to_sparse(1), "differs", hvd.Average)()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), named, sparse_as_dense=True
    )
    optimizer.step()
    assert_same_on_all_ranks(model)


def check_sparse_in_groups() -> None:
    model, optimizer = embedding()
    other = nn.Parameter(torch.ones(2))
    parameters = [model.weight, other]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), groups=[parameters])
    with raises(NotImplementedError, "sparse_as_dense=True"):
        (model(torch.tensor([0])).sum() + other.sum()).backward()
    for parameter in parameters:
        parameter.grad = None
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=0.1), groups=[parameters], sparse_as_dense=True
    )
    (model(torch.tensor([hvd.rank()])).sum() + other.sum()).backward()
    optimizer.step()
    assert model.weight.grad is not None and model.weight.grad.is_sparse
    assert_same_on_all_ranks(model)
