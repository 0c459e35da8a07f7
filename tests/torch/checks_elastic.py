"""TorchState and its handlers, among ranks that stay. Two ranks or more."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from util_expect import raises

import horovod.torch as hvd
from horovod.common.elastic import source_rank
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.runner.elastic.worker import HostUpdateResult
from horovod.torch.elastic.state import (
    ModelStateHandler,
    StateHandler,
    get_handler_registry,
    set_handler_registry,
)


def made(seed: int) -> tuple[Any, Any]:
    """A model and an optimizer that differ from rank to rank, after a step."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (1 + seed))
    step(model, optimizer)
    return model, optimizer


def step(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()


def values(model: Any, optimizer: Any) -> list[Any]:
    found = [value.clone() for value in model.state_dict().values()]
    for each in optimizer.state_dict()["state"].values():
        found += [torch.as_tensor(value).clone() for value in each.values()]
    return [*found, torch.tensor([group["lr"] for group in optimizer.param_groups])]


def same(ours: list[Any], theirs: list[Any]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def same_everywhere(what: list[Any]) -> bool:
    return all(same(what, others) for others in hvd.allgather_object(what))


def check_restore_takes_back_all_changes() -> None:
    model, optimizer = made(hvd.rank())
    state = hvd.elastic.TorchState(model, optimizer, epoch=1, history=[1])
    before = values(model, optimizer)
    for _ in range(2):  # the second time shows that nothing of the copy was handed out
        step(model, optimizer)
        state.epoch = 2
        state.history.append(2)
        assert not same(values(model, optimizer), before)
        state.restore()
        assert same(values(model, optimizer), before)
        assert (state.epoch, state.history) == (1, [1])
    step(model, optimizer)
    reached = values(model, optimizer)
    state.save()
    step(model, optimizer)
    state.restore()
    assert same(values(model, optimizer), reached)


def check_copies_are_in_host_memory_and_used_again() -> None:
    model, optimizer = made(0)
    state = hvd.elastic.TorchState(model, optimizer)
    handler: Any = state._handlers["model"]
    places = [value.data_ptr() for value in handler._saved.values()]
    step(model, optimizer)
    state.save()
    assert [value.data_ptr() for value in handler._saved.values()] == places
    assert not set(places) & {value.data_ptr() for value in model.state_dict().values()}
    assert all(value.device.type == "cpu" for value in handler._saved.values())


def check_sync_gives_all_the_same_and_saves_it() -> None:
    """In the original a new rank 0 that failed before its first commit went back to its initial weights."""
    assert source_rank() == 0
    model, optimizer = made(hvd.rank())
    sampler = hvd.elastic.ElasticSampler(range(20))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for _ in range(hvd.rank()):
        scheduler.step()
        sampler.record_batch(0, 1)
    state = hvd.elastic.TorchState(
        model, optimizer, sampler=sampler, scheduler=scheduler, epoch=10 + hvd.rank(), other=model[0]
    )
    if hvd.rank() == 0:
        step(model, optimizer)  # not saved, but reached
    state.sync()
    synced = values(model, optimizer)
    assert same_everywhere(synced)
    assert state.epoch == 10 and sampler.processed_num == 0 and scheduler.last_epoch == 0
    assert torch.equal(synced[-1], torch.tensor([0.1]))
    step(model, optimizer)
    state.restore()
    assert same(values(model, optimizer), synced)


def check_a_rank_without_state_of_the_optimizer() -> None:
    """A new rank has made no step yet."""
    model, optimizer = made(hvd.rank())
    if hvd.rank() != 0:
        optimizer = torch.optim.Adam(model.parameters())
    hvd.elastic.TorchState(model, optimizer).sync()
    assert same_everywhere(values(model, optimizer))


def check_attributes_are_the_objects_themselves() -> None:
    model, optimizer = made(0)
    state = hvd.elastic.TorchState(net=model, opt=optimizer, epoch=3)
    assert state.net is model and state.opt is optimizer and state.model is None
    other, _ = made(1)
    before = [value.clone() for value in other.state_dict().values()]
    state.net = other  # saved at once
    with torch.no_grad():
        other[0].weight += 1
    state.restore()
    assert state.net is other
    assert same([*other.state_dict().values()], before)
    state.model = 5  # was None, so it is a plain attribute
    state.save()
    state.model = 6
    state.restore()
    assert state.model == 5


def check_gradients_in_flight_are_forgotten() -> None:
    model, _ = made(0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    state = hvd.elastic.TorchState(model, optimizer)
    model(torch.ones(2, 3)).sum().backward()
    assert optimizer._horovod.in_flight
    optimizer.synchronize()  # so that nothing is left for the checks after this
    model(torch.ones(2, 3)).sum().backward()
    hvd.barrier()
    state.on_reset()
    assert not optimizer._horovod.in_flight
    hvd.barrier()


def check_adasum_says_which_sizes_it_can() -> None:
    model, _ = made(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.op, optimizer.process_set = hvd.Adasum, hvd.global_process_set  # type: ignore[attr-defined]
    state = hvd.elastic.TorchState(model, optimizer)
    if hvd.size() & (hvd.size() - 1):
        with raises(NotImplementedError, "power of two"):
            state.on_reset()
    else:
        state.on_reset()


class Scale:
    """Has a state like torch.amp.GradScaler."""

    def __init__(self, value: float) -> None:
        self.value = torch.tensor(value)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


class OwnHandler(StateHandler):
    """Of a type of the user's."""

    synced = 0

    def save(self) -> None:
        self.saved = copy.copy(self.value)

    def restore(self) -> None:
        self.value[:] = self.saved

    def sync(self) -> None:
        OwnHandler.synced += 1


def check_anything_with_a_state_dict() -> None:
    state = hvd.elastic.TorchState(scale=Scale(hvd.rank() + 1.0))
    state.sync()
    assert state.scale.value == 1.0
    state.scale.value += 1  # in place: what was saved must not follow
    state.restore()
    assert state.scale.value == 1.0
    state.scale.value += 1
    state.restore()
    assert state.scale.value == 1.0
    lbfgs = torch.optim.LBFGS([nn.Parameter(torch.ones(2) * hvd.rank())], lr=1.0 + hvd.rank())
    hvd.elastic.TorchState(optimizer=lbfgs).sync()
    assert lbfgs.param_groups[0]["lr"] == 1.0


def check_handlers_of_the_user() -> None:
    before = get_handler_registry()
    try:
        set_handler_registry([(list, OwnHandler), *before])
        state = hvd.elastic.TorchState(made(0)[0], items=[1])
        assert isinstance(state._handlers["items"], OwnHandler)
        assert isinstance(state._handlers["model"], ModelStateHandler)
        state.save()
        state.items.append(2)
        state.restore()
        assert state.items == [1]
        state.sync()
        assert OwnHandler.synced == 1
    finally:
        set_handler_registry(before)
    assert not isinstance(hvd.elastic.TorchState(items=[1])._handlers.get("items"), OwnHandler)


class Extra(nn.Linear):
    """A module that keeps an object in its state_dict()."""

    extra: Any = None

    def get_extra_state(self) -> Any:
        return {"extra": self.extra}

    def set_extra_state(self, state: Any) -> None:
        self.extra = state["extra"]


def check_extra_state_of_modules() -> None:
    model = Extra(2, 2)
    model.extra = [hvd.rank()]
    state = hvd.elastic.TorchState(model)
    state.sync()
    assert model.extra == [0]
    model.extra = [5]
    state.restore()
    assert model.extra == [0]


def check_extra_state_that_is_a_tensor() -> None:
    """Made anew for each state_dict(), and kept as it is given."""
    model = Extra(2, 2)
    model.get_extra_state, model.set_extra_state = (  # type: ignore[method-assign]
        lambda: torch.tensor(model.extra),
        lambda given: setattr(model, "extra", given.item()),
    )
    model.extra = 10.0 + hvd.rank()
    hvd.elastic.TorchState(model).sync()
    assert model.extra == 10.0

    model = Extra(2, 2)
    model.extra = torch.zeros(2)
    state = hvd.elastic.TorchState(model)
    for _ in range(2):
        state.restore()
        assert not model.extra.any()
        model.extra += 1  # in place: what was saved must not follow


def check_all_ranks_hear_of_a_notice_that_one_has() -> None:
    state = hvd.elastic.TorchState(epoch=0)
    for result, skip in ((HostUpdateResult.added, False), (HostUpdateResult.removed, True)):
        state.commit()
        if hvd.rank() == hvd.size() - 1:
            state.on_hosts_updated(state._last_updated_timestamp + 1, result)
        skipped: bool | None = None
        try:
            state.commit()
        except HostsUpdatedInterrupt as interrupt:
            skipped = interrupt.skip_sync
        assert skipped == skip
        state.commit()


def check_an_error_in_a_job_of_fixed_size_is_passed_on() -> None:
    """No other world can form."""

    @hvd.elastic.run
    def train(state: Any) -> None:
        raise hvd.HorovodInternalError("lost")

    with raises(hvd.HorovodInternalError, "lost"):
        train(hvd.elastic.TorchState(epoch=0))
