"""Training on several ranks gives what one process on the whole batch gives."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
from optimizer_util import (
    ROWS,
    assert_close,
    assert_same_on_all_ranks,
    batch,
    loss_of,
    small_model,
    train_alone,
    train_distributed,
)
from torch import nn

import horovod.torch as hvd

STEPS = 4


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)


def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01, amsgrad=True)


def adagrad(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=0.05)  # its constructor makes state


def compare(
    make: Any, tolerance: float = 2e-5, scale: float = 1.0, passes: int = 1, **arguments: Any
) -> None:
    model = train_distributed(make, STEPS, passes, **arguments)
    assert_same_on_all_ranks(model)
    assert_close(model, train_alone(make, STEPS, hvd.size(), scale), tolerance)


def check_sgd() -> None:
    compare(sgd)


def check_adam() -> None:
    compare(adam, tolerance=2e-4)


def check_adagrad() -> None:
    compare(adagrad, tolerance=2e-4)


def check_sum() -> None:
    compare(sgd, op=hvd.Sum, scale=float(hvd.size()), tolerance=1e-4)


def check_accumulation() -> None:
    compare(sgd, passes=2, scale=2.0, tolerance=1e-4)
    compare(sgd, passes=3, scale=3.0, groups=2, tolerance=1e-4)


def check_compression() -> None:
    compare(sgd, tolerance=5e-3, compression=hvd.Compression.fp16)
    compare(sgd, tolerance=5e-2, compression=hvd.Compression.bf16, groups=2)


def check_own_compression() -> None:
    class Flat:
        """Changes the shape, and hands over what is not the gradient."""

        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
            return tensor.double().flatten(), (tensor.shape, tensor.dtype)

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
            return tensor.view(ctx[0]).to(ctx[1])

    compare(sgd, compression=Flat)
    compare(sgd, compression=Flat, groups=3)


def check_groups() -> None:
    for count in (1, 2, 3, 100):
        compare(sgd, groups=count)


def check_listed_groups() -> None:
    model = small_model()
    parameters = list(model.parameters())
    optimizer = hvd.DistributedOptimizer(
        sgd(parameters), model.named_parameters(), groups=[[parameters[0], parameters[5]], [parameters[3]]]
    )
    for step in range(STEPS):
        loss_of(model, batch(step, hvd.size()), hvd.rank() * ROWS, (hvd.rank() + 1) * ROWS).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_same_on_all_ranks(model)
    assert_close(model, train_alone(sgd, STEPS, hvd.size()))


def check_predivide() -> None:
    compare(sgd, gradient_predivide_factor=float(hvd.size()))
    compare(sgd, gradient_predivide_factor=0.5, groups=2)


def check_process_set() -> None:
    """Members train together, the last rank on its own."""
    members = hvd.add_process_set(range(hvd.size() - 1)) if hvd.size() > 2 else hvd.add_process_set([0])
    last = hvd.size() - 1
    try:
        model = small_model()
        optimizer = hvd.DistributedOptimizer(
            sgd(list(model.parameters())), model.named_parameters(), process_set=members, groups=2
        )
        alone = small_model()
        plain = sgd(list(alone.parameters()))
        begin, end = (last, last + 1) if hvd.rank() == last else (0, last)
        for step in range(STEPS):
            data = batch(step, hvd.size())
            optimizer.zero_grad()
            loss_of(model, data, hvd.rank() * ROWS, (hvd.rank() + 1) * ROWS).backward()
            optimizer.step()
            plain.zero_grad()
            loss_of(alone, data, begin * ROWS, end * ROWS).backward()
            plain.step()
        assert_close(model, alone)
    finally:
        assert hvd.remove_process_set(members)


def check_clipping() -> None:
    def steps(model: nn.Module, optimizer: Any, begin: int, end: int) -> None:
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, batch(step, hvd.size()), begin, end).backward()
            if hasattr(optimizer, "synchronize"):
                optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            if hasattr(optimizer, "synchronize"):
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()

    model, alone = small_model(), small_model()
    optimizer = hvd.DistributedOptimizer(sgd(list(model.parameters())), model.named_parameters())
    steps(model, optimizer, hvd.rank() * ROWS, (hvd.rank() + 1) * ROWS)
    steps(alone, sgd(list(alone.parameters())), 0, hvd.size() * ROWS)
    assert_same_on_all_ranks(model)
    assert_close(model, alone)


def check_calls_of_lightning() -> None:
    """What Lightning 1.x's strategy "horovod" does around a training, with two optimizers of one model."""
    model = small_model()
    parts = [list(model[:4].parameters()), list(model[4:].parameters())]
    plain = [torch.optim.SGD(part, lr=0.1 / hvd.size(), momentum=0.9) for part in parts]
    for optimizer in plain:
        for group in optimizer.param_groups:
            group["lr"] *= hvd.size()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for optimizer in plain:
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    with contextlib.ExitStack() as stack:
        optimizers = []
        for optimizer, part in zip(plain, parts, strict=True):
            own = {id(parameter) for parameter in part}
            named = [(name, value) for name, value in model.named_parameters() if id(value) in own]
            optimizers.append(hvd.DistributedOptimizer(optimizer, named_parameters=named))
            stack.enter_context(optimizers[-1].skip_synchronize())
        begin = hvd.rank() * ROWS
        for step in range(STEPS):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = loss_of(model, batch(step, hvd.size()), begin, begin + ROWS)
            loss.backward()
            for optimizer in optimizers:
                optimizer.synchronize()
            for optimizer in optimizers:
                optimizer.step()
            # Its barrier
            hvd.join()
            assert hvd.allreduce(loss.detach(), op=hvd.Sum).isfinite()
            assert len(hvd.allgather(loss.detach().reshape(1))) == hvd.size()
            assert hvd.broadcast_object(step, 0) == step
    hvd.join()
    assert_same_on_all_ranks(model)
    assert_close(
        model, train_alone(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), STEPS, hvd.size()), 1e-4
    )


def check_a_rank_without_batches() -> None:
    """In the first epoch, after which it has to know of its gradients what the others do."""
    model = nn.ModuleList([nn.Linear(2, 2), nn.Embedding(3, 2, sparse=True)])
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    for epoch in range(2):
        for _ in range(2 if epoch or hvd.rank() == 0 else 0):
            optimizer.zero_grad()
            model[0](torch.ones(1, 2)).sum().backward()
            optimizer.step()
        hvd.join()
    optimizer.zero_grad()
    model[0](model[1](torch.tensor([1])) if hvd.rank() == 0 else torch.ones(1, 2)).sum().backward()
    optimizer.step()
    gradient = model[1].weight.grad
    assert gradient is not None and gradient.is_sparse


def check_gradient_scaler() -> None:
    """Mixed precision; the last rank overflows in the first step, which all ranks skip then."""
    model = small_model()
    optimizer = hvd.DistributedOptimizer(sgd(list(model.parameters())), model.named_parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scales = []
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, batch(step, hvd.size()), hvd.rank() * ROWS, (hvd.rank() + 1) * ROWS)
        if step == 0 and hvd.rank() == hvd.size() - 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [512.0] * STEPS, scales
    assert_same_on_all_ranks(model)
    initial = small_model()
    assert any((a != b).any() for a, b in zip(model.parameters(), initial.parameters(), strict=True))


def check_closure() -> None:
    for make in (
        lambda parameters: torch.optim.LBFGS(parameters, lr=0.5, max_iter=4, line_search_fn="strong_wolfe"),
        sgd,
    ):
        results = []
        for ranks in (hvd.size(), 1):
            model = small_model().double()
            optimizer: Any = make(list(model.parameters()))
            begin, end = 0, hvd.size() * ROWS
            if ranks > 1:
                optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
                begin, end = hvd.rank() * ROWS, (hvd.rank() + 1) * ROWS
            data = batch(0, hvd.size())

            def closure(
                optimizer: Any = optimizer, model: Any = model, data: Any = data, rows: Any = (begin, end)
            ) -> Any:
                optimizer.zero_grad()
                loss = loss_of(model, (data[0].double(), data[1]), *rows)
                loss.backward()
                return loss

            for _ in range(3):
                optimizer.step(closure)
            results.append(model)
        assert_same_on_all_ranks(results[0])
        assert_close(results[0], results[1], 1e-7)


def check_scheduler_and_state_dict() -> None:
    """A checkpoint of the distributed optimizer continues in a plain one and the other way round."""
    model = small_model()
    optimizer = hvd.DistributedOptimizer(adam(list(model.parameters())), model.named_parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    rows = (hvd.rank() * ROWS, (hvd.rank() + 1) * ROWS)
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.size()), *rows).backward()
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.0025
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    torch.save(model, io.BytesIO())  # the hooks don't go with it

    def saved() -> dict[str, Any]:  # anew: an optimizer works on the tensors that it was given
        file.seek(0)
        content: dict[str, Any] = torch.load(file)
        return content

    plain_model = small_model()
    plain_model.load_state_dict(saved()["model"])
    plain = adam(list(plain_model.parameters()))
    plain.load_state_dict(saved()["optimizer"])
    again_model = small_model()
    again_model.load_state_dict(saved()["model"])
    loaded = adam(list(again_model.parameters()))
    loaded.load_state_dict(saved()["optimizer"])
    again = hvd.DistributedOptimizer(loaded, again_model.named_parameters())  # keeps the state

    loss_of(plain_model, batch(9, hvd.size()), 0, hvd.size() * ROWS).backward()
    plain.step()
    optimizer.load_state_dict(saved()["optimizer"])
    optimizer.zero_grad()
    for one, its_model in ((optimizer, model), (again, again_model)):
        loss_of(its_model, batch(9, hvd.size()), *rows).backward()
        one.step()
        assert_same_on_all_ranks(its_model)
        assert_close(its_model, plain_model, 1e-4)


def check_broadcast_optimizer_state() -> None:
    model = small_model()
    optimizer = hvd.DistributedOptimizer(adam(list(model.parameters())), model.named_parameters())
    if hvd.rank() == 0:
        optimizer.param_groups[0]["lr"] = 0.125
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.125
    loss_of(model, batch(0, hvd.size()), hvd.rank() * ROWS, (hvd.rank() + 1) * ROWS).backward()
    optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert_same_on_all_ranks(model)
