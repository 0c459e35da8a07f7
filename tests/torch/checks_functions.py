"""Parameters, optimizer state and objects from one rank to all. Two ranks or more."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from util_expect import raises

import horovod.torch as hvd
from horovod.common.handles import table


def check_broadcast_parameters() -> None:
    rank = float(hvd.rank())
    torch.manual_seed(hvd.rank())
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(2, 3))
    model[1].num_batches_tracked += hvd.rank()
    model[0].to(memory_format=torch.channels_last)
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
    torch.manual_seed(1)
    expected = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(2, 3)).state_dict()
    expected["1.num_batches_tracked"] += 1
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    for given in (
        lambda t: [t],
        lambda t: [("named", t)],
        lambda t: iter([("named", t)]),
        lambda t: {"named": t},
        lambda t: (t,),
    ):
        tensor = torch.full((3,), rank)
        hvd.broadcast_parameters(given(tensor), 0)  # type: ignore[no-untyped-call]
        assert tensor.tolist() == [0, 0, 0]
    linear = nn.Linear(2, 2)
    hvd.broadcast_parameters(linear.named_parameters(), 0)
    hvd.broadcast_parameters([], 0)
    for wrong in (5, "abc", torch.zeros(3), None):
        with raises(ValueError, "params"):
            hvd.broadcast_parameters(wrong, 0)  # type: ignore[arg-type]
    with raises(ValueError, "'extra'", "broadcast_object"):
        hvd.broadcast_parameters({"extra": 5}, 0)  # type: ignore[dict-item]


def check_an_error_leaves_nothing_behind() -> None:
    """What was sent beside the one in error still arrives, and is not written later."""
    before = len(table._pending)
    mine = torch.full((1 << 20,), float(hvd.rank()))
    with raises(hvd.HorovodInternalError, "different"):
        hvd.broadcast_parameters({"different": torch.ones(2 + (hvd.rank() == 0)), "large": mine}, 0)
    assert len(table._pending) == before and not mine.any()
    with raises(ValueError):
        hvd.broadcast_parameters({"fine": mine, "overlaps": torch.ones(1).expand(4)}, 0)
    assert len(table._pending) == before
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.state[parameter] = {"fine": mine, "overlaps": torch.ones(1).expand(4)}
    with raises(ValueError):
        hvd.broadcast_optimizer_state(optimizer, 0)
    assert len(table._pending) == before


def check_default_device() -> None:
    """What goes to the engine is in host memory, wherever the program makes its tensors."""
    with torch.device("cpu"):
        matrix = torch.arange(6.0).view(2, 3).t()
        vector = torch.ones(hvd.size(), requires_grad=True)
        parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    if hvd.rank() == 0:
        optimizer.state[parameter] = {"matrix": matrix.contiguous()}
    torch.set_default_device("meta")
    try:
        assert hvd.allreduce(matrix).tolist() == matrix.tolist()
        received, splits = hvd.alltoall(vector.detach(), splits=[1] * hvd.size())
        assert received.tolist() == splits.tolist() == [1] * hvd.size()
        hvd.allgather(vector).sum().backward()
        assert vector.grad is not None and vector.grad.tolist() == [1.0] * hvd.size()
        assert hvd.empty(3).device.type == hvd.empty(100_000).device.type == "cpu"
        hvd.broadcast_optimizer_state(optimizer, 0)
        assert optimizer.state[parameter]["matrix"].tolist() == matrix.tolist()
    finally:
        torch.set_default_device(None)


def check_objects() -> None:
    mine = {"rank": hvd.rank(), "tensor": torch.full((hvd.rank() + 1,), hvd.rank())}
    for rank, other in enumerate(hvd.allgather_object(mine)):
        assert other["rank"] == rank and other["tensor"].tolist() == [rank] * (rank + 1)
    assert hvd.broadcast_object(mine if hvd.rank() == 1 else "another type", 1)["rank"] == 1
    assert hvd.broadcast_object(lambda x: x + 1, name="function")(1) == 2


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "SGD": [{"lr": 0.1}, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}],
    "Adam": [{}, {"amsgrad": True, "weight_decay": 0.1}, {"lr": torch.tensor(0.01)}],
    "AdamW": [{}, {"fused": True}],
    "RMSprop": [{}, {"momentum": 0.9, "centered": True}],
    "Rprop": [{}],
}
OPTIMIZERS = [
    optimizer
    for optimizer in vars(torch.optim).values()
    if inspect.isclass(optimizer) and issubclass(optimizer, torch.optim.Optimizer)
    if optimizer not in (torch.optim.Optimizer, torch.optim.LBFGS)
]


def make(kind: type[torch.optim.Optimizer], options: dict[str, Any], seed: int) -> tuple[nn.Module, Any]:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Embedding(5, 3, sparse=kind is torch.optim.SparseAdam), nn.Linear(3, 2, bias=False)
    )
    if kind is torch.optim.SparseAdam:
        del model[1]
    fresh = {key: value.clone() if isinstance(value, Tensor) else value for key, value in options.items()}
    return model, kind(model.parameters(), **fresh)


def step(model: nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.tensor([0, 2, 4])).pow(2).sum().backward()
    optimizer.step()


def flat(value: Any) -> Any:
    """Tensors as lists, so that states can be compared with ==."""
    if isinstance(value, Tensor):
        return (str(value.dtype), value.tolist())
    if isinstance(value, dict):
        return {key: flat(item) for key, item in value.items()}
    return [flat(item) for item in value] if isinstance(value, list | tuple) else value


def check_optimizer_state() -> None:
    assert {kind.__name__ for kind in OPTIMIZERS} >= {"SGD", "Adam", "AdamW", "Adagrad", "SparseAdam"}
    for kind in OPTIMIZERS:
        for options in OPTIONS.get(kind.__name__, [{}]):
            for steps in ([0] * hvd.size(), [2] + [0] * (hvd.size() - 1), [0] + [3] * (hvd.size() - 1)):
                check_one_optimizer(kind, options, steps)


def check_one_optimizer(
    kind: Any = torch.optim.Adam, options: dict[str, Any] | None = None, steps: list[int] | None = None
) -> None:
    model, optimizer = make(kind, options or {}, hvd.rank())
    for _ in range(steps[hvd.rank()] if steps else hvd.rank()):
        step(model, optimizer)
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * 0 + 0.25 * (hvd.rank() + 1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    gradients = [parameter.grad for parameter in model.parameters()]
    fresh = hvd.broadcast_object(not optimizer.state)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    what = (kind.__name__, options, steps)
    assert all(map(torch.equal, before, model.parameters())), what
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        if gradient is None and fresh:
            assert parameter.grad is not None and not parameter.grad.to_dense().any(), what
            assert parameter.grad.is_sparse == (kind is torch.optim.SparseAdam), what
        else:
            assert parameter.grad is gradient, what
    states = hvd.allgather_object(flat(optimizer.state_dict()))
    assert all(state == states[0] for state in states), (what, states)
    assert states[0]["param_groups"][0]["lr"] in (0.25, ("torch.float32", 0.25)), (what, states[0])
    # From equal parameters the next step is the same everywhere.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    step(model, optimizer)
    states = hvd.allgather_object(flat([optimizer.state_dict(), model.state_dict()]))
    assert all(state == states[0] for state in states), (what, states)


def check_gradients_after_a_fresh_optimizer_state() -> None:
    """Programs broadcast them right away, though nothing has computed any."""
    embedding, layer = nn.Embedding(4, 3, sparse=True), nn.Linear(3, 2)
    layer.bias.requires_grad_(False)
    model = nn.Sequential(embedding, layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, 0, model)
    assert layer.weight.grad is not None and layer.bias.grad is None
    assert hvd.broadcast(layer.weight.grad, root_rank=0).tolist() == [[0.0] * 3] * 2
    assert embedding.weight.grad is not None and embedding.weight.grad.is_sparse
    model(torch.tensor([hvd.rank()])).sum().backward()  # without zero_grad()
    optimizer.step()
    assert embedding.weight.grad.is_sparse and layer.weight.grad.any()
    assert not optimizer.state[layer.bias]


def check_optimizer_tensors_stay_the_same_objects() -> None:
    model, optimizer = make(torch.optim.Adam, {"lr": torch.tensor(0.5 + hvd.rank())}, 0)
    step(model, optimizer)
    lr = optimizer.param_groups[0]["lr"]
    state = optimizer.state[model[0].weight]["exp_avg"]  # type: ignore[index]
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert optimizer.param_groups[0]["lr"] is lr and lr.item() == 0.5
    assert optimizer.state[model[0].weight]["exp_avg"] is state  # type: ignore[index]


def check_optimizer_with_its_own_kind_of_state() -> None:
    class Odd(torch.optim.SGD):
        pass

    parameter = nn.Parameter(torch.ones(2))
    optimizer = Odd([parameter], lr=0.1)
    if hvd.rank() == 0:
        optimizer.state["global"] = {"history": [torch.tensor([1.0, 2.0]), (torch.tensor(3), "text")]}
        optimizer.state[parameter] = {"none": None, "nested": {"deep": torch.tensor([4.0])}}
    hvd.broadcast_optimizer_state(optimizer, 0)
    history = optimizer.state["global"]["history"]
    assert history[0].tolist() == [1, 2] and history[1][0] == 3 and history[1][1] == "text"
    assert optimizer.state[parameter]["none"] is None
    assert optimizer.state[parameter]["nested"]["deep"].tolist() == [4]


def check_optimizers_that_cannot_be_broadcast() -> None:
    with raises(ValueError, "LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS([nn.Parameter(torch.ones(2))]), 0)
    parameters = [nn.Parameter(torch.ones(2)) for _ in range(1 + (hvd.rank() == 1))]
    with raises(ValueError, "rank 1", "rank 0"):
        hvd.broadcast_optimizer_state(torch.optim.SGD(parameters), 0)
    with raises(ValueError, "99"):
        hvd.broadcast_optimizer_state(torch.optim.SGD([nn.Parameter(torch.ones(2))]), 99)


def check_distributed_optimizer_state() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (hvd.rank() + 1), momentum=0.9)
    distributed = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_optimizer_state(distributed, 0)
    assert distributed.param_groups[0]["lr"] == 0.1 and not distributed.state
    model(torch.full((1, 3), hvd.rank() + 1.0)).sum().backward()
    distributed.step()
    hvd.broadcast_optimizer_state(distributed, hvd.size() - 1)
    states = hvd.allgather_object(flat(distributed.state_dict()))
    assert all(state == states[0] for state in states) and states[0]["state"]


def check_tensors_in_shared_memory() -> None:
    """Also of a type that numpy does not have, and as a gradient that stays."""
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.int64):
        tensor = hvd.empty((3, 40_000), dtype)
        assert tensor.dtype == dtype and tensor.shape == (3, 40_000) and tensor.is_contiguous()
        tensor.fill_(1)
        hvd.allreduce_(tensor, name=f"shared {dtype}", op=hvd.Sum)
        assert (tensor == torch.tensor(hvd.size(), dtype=dtype)).all()
    assert hvd.empty(5).shape == hvd.empty(np.int64(5)).shape == (5,) and hvd.empty(()).shape == ()
    weight = torch.nn.Parameter(torch.zeros(50_000))
    weight.grad = hvd.empty(50_000).zero_()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], 1.0), [("weight", weight)])
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        ((hvd.rank() + 1) * weight).sum().backward()
        optimizer.step()
    assert (weight == -3 * (hvd.size() + 1) / 2).all()
