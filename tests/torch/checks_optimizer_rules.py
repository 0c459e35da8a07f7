"""What DistributedOptimizer promises beside the right result, on at least two ranks."""

from __future__ import annotations

import copy
import gc
import pickle
import time
import warnings
import weakref
from typing import Any

import torch
from optimizer_util import assert_same_on_all_ranks, backward, one_layer, total
from torch import nn
from util_expect import raises

import horovod.torch as hvd


def check_class() -> None:
    model, optimizer = one_layer()
    assert type(optimizer).__name__ == "SGD" and isinstance(optimizer, torch.optim.SGD)
    assert type(optimizer).__mro__[1:] == torch.optim.SGD.__mro__
    assert repr(optimizer).startswith("SGD (") and optimizer.defaults["lr"] == 0.5
    assert "horovod" in str(type(optimizer))
    for operation in (pickle.dumps, copy.copy, copy.deepcopy):
        with raises(TypeError, "state_dict"):
            operation(optimizer)
    pickle.loads(pickle.dumps(optimizer.state_dict()))
    copy.deepcopy(model), pickle.loads(pickle.dumps(model))


def check_attributes() -> None:
    """What programs read; also of parameters that are added later."""
    model, optimizer = one_layer(gradient_predivide_factor=2.0)
    assert optimizer._parameter_names == {model.weight: "weight", model.bias: "bias"}
    assert optimizer.op == hvd.Average and optimizer.process_set is hvd.global_process_set
    assert optimizer.gradient_predivide_factor == 2.0 and optimizer.sparse_as_dense is False
    assert optimizer.backward_passes_per_step == 1
    late = nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [late]})
    assert optimizer._parameter_names[late] == "allreduce.noname.1.0"
    if hvd.size() == 2:
        model, optimizer = one_layer(op=hvd.Adasum, backward_passes_per_step=3)
        assert optimizer._parameter_names == {model.weight: "weight", model.bias: "bias"}
        assert optimizer.op == hvd.Adasum and optimizer.backward_passes_per_step == 3
        optimizer.add_param_group({"params": [late]})
        assert optimizer._parameter_names[late] == "allreduce.noname.1.0"
        assert "horovod" in str(type(optimizer))


def check_any_constructor() -> None:
    class Strict(torch.optim.Optimizer):
        def __init__(self, params: Any, *, rate: float, secret: list[int]) -> None:
            super().__init__(params, {"rate": rate})
            self.secret = secret

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.secret.append(1)
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data.sub_(parameter.grad, alpha=group["rate"])

    parameter = nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(Strict([parameter], rate=1.0, secret=[]))
    (parameter * hvd.rank()).sum().backward()
    optimizer.step()
    assert parameter.tolist() == [-total(float) / hvd.size()] * 2 and optimizer.secret == [1]


def check_step_hooks_run_once() -> None:
    model, optimizer = one_layer()
    seen: list[float] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(float(model.bias.grad[0])))
    backward(model)
    model.bias.grad.mul_(1)
    optimizer.step()
    assert seen == [1.0]


def check_names() -> None:
    model = nn.Linear(3, 2)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    with raises(ValueError, "pairs"):
        hvd.DistributedOptimizer(plain, list(model.parameters()))
    with raises(ValueError, "'a' twice"):
        hvd.DistributedOptimizer(plain, [("a", model.weight), ("a", model.bias)])
    with raises(ValueError, "lacks 1 of the 2"):
        hvd.DistributedOptimizer(plain, [("weight", model.weight)])
    optimizer = hvd.DistributedOptimizer(plain)
    backward(model)
    optimizer.step()
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.full((2, 3), total(lambda r: r + 1) / hvd.size()))


def check_arguments() -> None:
    model = nn.Linear(3, 2)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    weight = model.weight
    for arguments in (
        {"backward_passes_per_step": 0},
        {"op": hvd.Min},
        {"op": hvd.Sum, "gradient_predivide_factor": 2.0},
        {"gradient_predivide_factor": -1.0},
        {"groups": 0},
        {"groups": -1},
        {"groups": "all"},
        {"groups": [weight]},
        {"groups": [["weight"]]},
        {"groups": [[weight, weight]]},
        {"groups": [[weight], [weight]]},
    ):
        with raises(ValueError):
            hvd.DistributedOptimizer(plain, **arguments)
    with raises(ValueError, "Optimizer"):
        hvd.DistributedOptimizer(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hvd.DistributedOptimizer(plain, num_groups=1)
    assert [entry.category for entry in caught] == [DeprecationWarning], caught
    assert caught[0].filename == __file__


def check_gradients_travel_during_backward() -> None:
    """The last layer's gradient is combined before the first layer's is computed."""
    first, last = nn.Linear(3, 1000, bias=False), nn.Linear(1000, 1000, bias=False)
    model = nn.Sequential(first, last)
    nn.init.ones_(first.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    seen: list[float] = []

    def at_the_first_layer(gradient: torch.Tensor) -> None:
        handle = optimizer._horovod._buckets[1].handle
        deadline = time.monotonic() + 30
        while not hvd.poll(handle) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert last.weight.grad is not None
        seen.append(last.weight.grad[0, 0].item())

    inputs = torch.full((1, 3), hvd.rank() + 1.0, requires_grad=True)
    inputs.register_hook(at_the_first_layer)
    model(inputs).sum().backward()
    assert seen == [3 * total(lambda r: r + 1) / hvd.size()], seen
    assert optimizer._horovod.in_flight
    optimizer.step()
    assert not optimizer._horovod.in_flight


def check_missing_gradients() -> None:
    """Ranks that don't use a layer add zeros; so do all for one that nobody uses."""
    layers = nn.ModuleList([nn.Linear(1, 1, bias=False) for _ in range(hvd.size() + 1)])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(layers.parameters(), lr=0.1), layers.named_parameters()
    )
    for step in range(3):
        layers[(hvd.rank() + step) % hvd.size()](torch.full((1, 1), 6.0)).backward()
        optimizer.step()
        gradients = [layer.weight.grad.item() for layer in layers]
        assert gradients == [6.0 / hvd.size()] * hvd.size() + [0.0], gradients
        optimizer.zero_grad()
    grouped = hvd.DistributedOptimizer(
        torch.optim.SGD(layers.parameters(), lr=0.1), layers.named_parameters(), groups=2
    )
    layers[hvd.rank()](torch.full((1, 1), 6.0)).backward()
    grouped.step()
    gradients = [layer.weight.grad.item() for layer in layers]
    assert gradients == [6.0 / hvd.size()] * hvd.size() + [0.0], gradients


def check_passes() -> None:
    model, optimizer = one_layer(backward_passes_per_step=2)
    expected = total(lambda r: r + 1) / hvd.size()
    backward(model)
    assert not optimizer._horovod.in_flight
    backward(model)
    assert optimizer._horovod.in_flight
    with raises(AssertionError, "backward_passes_per_step"):
        backward(model)
    optimizer.synchronize()
    optimizer.zero_grad()
    backward(model)  # a step earlier than that
    optimizer.step()
    assert model.weight.grad[0].tolist() == [expected] * 3
    optimizer.zero_grad()
    backward(model)
    optimizer.zero_grad()  # starts to count again
    backward(model)
    backward(model)
    optimizer.step()
    assert model.weight.grad[0].tolist() == [2 * expected] * 3
    optimizer.set_backward_passes_per_step(1)
    assert optimizer.backward_passes_per_step == 1
    optimizer.zero_grad()
    backward(model)
    assert optimizer._horovod.in_flight
    optimizer.step()
    with raises(ValueError, "at least 1"):
        optimizer.set_backward_passes_per_step(0)


def check_synchronize() -> None:
    model, optimizer = one_layer()
    backward(model)
    with raises(AssertionError, "zero_grad"):
        optimizer.zero_grad()
    with raises(AssertionError, "synchronize()"), optimizer.skip_synchronize():
        optimizer.step()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with optimizer.skip_synchronize():
            optimizer.step()
        assert not caught
        optimizer.zero_grad(set_to_none=False)
        assert model.bias.grad.tolist() == [0.0, 0.0]
        optimizer.zero_grad(True)
        backward(model)
        optimizer.synchronize()
        optimizer.step()
    words = "optimizer.step() called without optimizer.skip_synchronize()"
    assert len(caught) == 1 and words in str(caught[0].message), caught
    assert caught[0].filename == __file__
    assert_same_on_all_ranks(model)


def check_model_zero_grad_in_between() -> None:
    model, optimizer = one_layer()
    backward(model)
    model.zero_grad()
    optimizer.step()
    assert model.bias.grad.tolist() == [1.0, 1.0]


def check_load_state_dict_starts_anew() -> None:
    model, optimizer = one_layer()
    saved = optimizer.state_dict()
    backward(model)
    optimizer.load_state_dict(saved)
    hvd.barrier()  # what was given up has been reduced everywhere, so that the names are free
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
    assert_same_on_all_ranks(model)


def check_wrapped_twice() -> None:
    """The newer optimizer takes the parameters over; the older one says so."""
    model, older = one_layer()
    newer = hvd.DistributedOptimizer(older, model.named_parameters())
    assert type(newer).__mro__[1] is torch.optim.SGD
    backward(model)
    with raises(RuntimeError, "newer"):
        older.step()
    newer.step()
    assert_same_on_all_ranks(model)


def check_hooks_go_with_the_optimizer() -> None:
    model, optimizer = one_layer()
    dead = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert dead() is None
    backward(model)
    backward(model)
    assert not model.weight._post_accumulate_grad_hooks
    assert model.bias.grad.tolist() == [2.0, 2.0]


def check_compressor_that_works_in_place() -> None:
    class Halves:
        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
            return tensor.div_(2), None

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
            return tensor * 2

    for arguments in ({}, {"groups": 1}):
        model, optimizer = one_layer(compression=Halves, **arguments)
        backward(model)
        optimizer.step()
        assert model.bias.grad.tolist() == [1.0, 1.0]


def check_disagreement() -> None:
    """An error that all ranks get, in step(); the next step works."""
    other = hvd.rank() == 0
    parameters = {
        "same": nn.Parameter(torch.ones(2)),
        "different": nn.Parameter(torch.ones(3 if other else 4)),
    }
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters.values(), lr=1.0), parameters.items())
    sum(parameter.sum() for parameter in parameters.values()).backward()  # type: ignore[union-attr]
    with raises(hvd.HorovodInternalError, "different"):
        optimizer.step()
    parameters["different"].requires_grad_(False)
    optimizer.zero_grad()
    (parameters["same"] * hvd.rank()).sum().backward()
    optimizer.step()
    assert parameters["same"].grad is not None
    assert parameters["same"].grad.tolist() == [total(float) / hvd.size()] * 2


def check_zero_grad_after_a_failed_backward() -> None:
    """What was sent before the failure is not in the way, in backward() or in synchronize()."""

    class Fails:
        broken = True

        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
            return tensor.to(torch.float8_e4m3fn) if Fails.broken and tensor.shape[1] == 300 else tensor, None

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
            return tensor

    torch.manual_seed(4)
    # Large enough to be sent at once
    model = nn.Sequential(nn.Linear(300, 2000, bias=False), nn.Linear(2000, 100, bias=False))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0), model.named_parameters(), compression=Fails
    )
    inputs = torch.full((1, 300), hvd.rank() + 1.0)
    with raises(ValueError, "float8"):
        model(inputs).sum().backward()
    optimizer.zero_grad()
    assert not optimizer._horovod.in_flight
    with raises(ValueError, "float8"):
        model(inputs).sum().backward()
    with raises(ValueError, "float8"):
        optimizer.synchronize()
    optimizer.zero_grad()
    Fails.broken = False
    for _ in range(2):
        model(inputs).sum().backward()
        with raises(AssertionError, "zero_grad"):
            optimizer.zero_grad()
        optimizer.step()
        expected = model[1].weight.sum(0) * total(lambda r: r + 1) / hvd.size()
        assert torch.allclose(model[0].weight.grad[:, 0], expected, atol=1e-5)
        optimizer.zero_grad()


def check_compiled() -> None:
    for backend in ("eager", "aot_eager"):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
        )
        compiled = torch.compile(model, backend=backend)
        for _ in range(3):
            optimizer.zero_grad()
            compiled(torch.full((1, 3), hvd.rank() + 1.0)).sum().backward()
            assert optimizer._horovod.in_flight
            optimizer.step()
        assert model[1].bias.grad is not None and model[1].bias.grad.tolist() == [1.0, 1.0]
        assert_same_on_all_ranks(model)
        torch.compiler.reset()


def check_non_members() -> None:
    members = hvd.add_process_set([0])
    try:
        model, optimizer = one_layer(process_set=members)
        backward(model)
        optimizer.step()
        assert model.weight.grad[0].tolist() == [hvd.rank() + 1.0] * 3
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
    finally:
        hvd.remove_process_set(members)
    with raises(NotImplementedError, "process set"):
        one_layer(process_set=hvd.ProcessSet([0]), op=hvd.Adasum)
