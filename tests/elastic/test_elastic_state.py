"""State, ObjectState and the loop of `run`, against simple models of them; without other processes."""

from __future__ import annotations

import contextlib
import copy
import random
from typing import Any

import pytest

from horovod._bootstrap.host_update import HostUpdateResult
from horovod.common import elastic, elastic_world
from horovod.common.elastic import ObjectState, State, notification_manager, run_fn
from horovod.errors import HorovodInternalError, HostsUpdatedInterrupt


def alone(**values: Any) -> ObjectState:
    """A state of a world of one."""
    return ObjectState(lambda value: value, lambda: 0, **values)


class Recorded(State):
    """Notes what is done with it."""

    def __init__(self) -> None:
        super().__init__(lambda value: value, lambda: 0)
        self.calls: list[str] = []

    def save(self) -> None:
        self.calls.append("save")

    def restore(self) -> None:
        self.calls.append("restore")

    def sync(self) -> None:
        self.calls.append("sync")

    def reset(self) -> None:
        self.calls.append("reset")


def test_changes_within_a_value_are_taken_back() -> None:
    state = alone(numbers=[1], table={"a": [1]})
    state.numbers.append(2)
    state.table["a"].append(2)
    state.restore()
    assert state.numbers == [1] and state.table == {"a": [1]}
    state.numbers.append(3)  # nor does one after a restore reach what was saved
    state.restore()
    assert state.numbers == [1]


def test_what_was_not_a_keyword_is_not_tracked() -> None:
    state = alone(epoch=0)
    state.other = 1
    state.save()
    state.other = 2
    state.restore()
    assert state.other == 2


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'commit'.*another name"):
        alone(commit=1)


def test_what_cannot_be_copied_is_named() -> None:
    with pytest.raises(TypeError, match="'lines'"):
        alone(lines=(line for line in "ab"))


def test_sync_sends_what_was_reached_and_saves_it() -> None:
    sent: list[dict[str, int]] = []

    def receive(value: dict[str, int]) -> dict[str, int]:
        sent.append(dict(value))
        return {"epoch": 7, "batch": 8}

    state = ObjectState(receive, lambda: 1, epoch=0, batch=0)
    state.batch = 5  # not saved
    state.sync()
    assert sent == [{"epoch": 0, "batch": 5}]
    assert (state.epoch, state.batch) == (7, 8)
    state.batch = 9
    state.restore()
    assert state.batch == 8


def test_a_state_of_the_users_own_gets_the_newest_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its function would send what rank 0 has, which may be a process that has just joined."""

    class Own(State):
        epoch = 0

        def sync(self) -> None:
            self.epoch = self._bcast_object(self.epoch)

    state = Own(lambda value: "of rank 0", lambda: 0)
    state.sync()
    assert state.epoch == "of rank 0"
    monkeypatch.setattr(elastic, "source_rank", lambda: 2)
    monkeypatch.setattr(elastic, "broadcast_object", lambda value, root: f"of rank {root}")
    state.sync()
    assert state.epoch == "of rank 2"


def test_a_state_with_other_attributes_is_an_error() -> None:
    state = ObjectState(lambda value: {"epoch": 1, "lr": 2}, lambda: 1, epoch=0)
    with pytest.raises(ValueError, match=r"\['epoch', 'lr'\].*\['epoch'\].*same program"):
        state.sync()


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_of_an_object_state(seed: int) -> None:
    """Save, restore, sync and changes in any order, compared with a dict that is copied."""
    chance = random.Random(seed)
    others = [0]
    is_source = chance.random() < 0.5
    state = ObjectState(
        lambda value: value if is_source else {"items": list(others)}, lambda: 0 if is_source else 1, items=[]
    )
    live: list[int] = []
    saved: list[int] = []
    for step in range(300):
        action = chance.choice(["change", "assign", "save", "restore", "sync"])
        if action == "change":
            state.items.append(step)
            live.append(step)
        elif action == "assign":
            state.items = [step]
            live = [step]
        elif action == "save":
            state.save()
            saved = list(live)
        elif action == "restore":
            state.restore()
            live = list(saved)
        else:
            others.append(step)
            state.sync()
            if not is_source:
                live = list(others)
            saved = list(live)
        assert state.items == live, (step, action)


def test_notices_raise_once_and_only_if_they_are_new() -> None:
    state = Recorded()
    state.check_host_updates()
    state.on_hosts_updated(3, HostUpdateResult.added)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert not caught.value.skip_sync
    state.on_hosts_updated(3, HostUpdateResult.added)  # said again
    state.check_host_updates()
    assert state._host_messages.empty()
    state._last_updated_timestamp = 0
    state.on_hosts_updated(2, HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync


@pytest.mark.parametrize(
    ("results", "skip_sync"),
    [
        ([HostUpdateResult.removed], True),
        ([HostUpdateResult.added], False),
        ([HostUpdateResult.mixed], False),
        ([HostUpdateResult.removed, HostUpdateResult.added], False),
        ([HostUpdateResult.added, HostUpdateResult.removed], False),
        ([HostUpdateResult.removed, HostUpdateResult.removed], True),
    ],
)
def test_several_notices_count_as_one(results: list[HostUpdateResult], skip_sync: bool) -> None:
    state = Recorded()
    for number, result in enumerate(results, 1):
        state.on_hosts_updated(number, result)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync == skip_sync


def test_commit_saves_before_it_looks() -> None:
    state = Recorded()
    state.on_hosts_updated(1, HostUpdateResult.added)
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()
    assert state.calls == ["save"]


def test_callbacks_are_added_and_called_in_order_after_reset() -> None:
    state = Recorded()
    state.register_reset_callbacks([lambda: state.calls.append("first")])
    state.register_reset_callbacks([lambda: state.calls.append("second")])
    state.on_hosts_updated(1, HostUpdateResult.added)
    state.on_reset()
    assert state.calls == ["reset", "first", "second"]
    assert state._host_messages.empty()


class Worlds:
    """A training function and resets that fail as told; notes in which order things happen."""

    def __init__(self, state: Recorded, calls: list[Any], resets: list[Any]) -> None:
        self.state = state
        self.calls = calls
        self.resets = resets

    def train(self, state: Recorded, *args: Any, **kwargs: Any) -> Any:
        """What a training function is."""
        self.state.calls.append("train")
        outcome = self.calls.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome, args, kwargs

    def reset(self) -> None:
        self.state.calls.append("restart")
        outcome = self.resets.pop(0) if self.resets else None
        if outcome is not None:
            raise outcome

    def run(self) -> Any:
        return run_fn(self.train, self.reset)(self.state, 1, two=2)


@pytest.fixture(autouse=True)
def _fresh_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic_world, "progress", elastic_world.Progress())


def test_the_result_arguments_and_name_are_those_of_the_function() -> None:
    worlds = Worlds(Recorded(), ["result"], [])
    assert worlds.run() == ("result", (1,), {"two": 2})
    assert worlds.state.calls == ["sync", "train"]
    wrapped = run_fn(worlds.train, worlds.reset)
    assert wrapped.__name__ == "train" and wrapped.__doc__ == "What a training function is."


def test_an_error_goes_back_to_the_last_commit() -> None:
    worlds = Worlds(Recorded(), [HorovodInternalError("lost"), "result"], [])
    assert worlds.run()[0] == "result"
    assert worlds.state.calls == ["sync", "train", "restore", "restart", "reset", "sync", "train"]


@pytest.mark.parametrize(("skip_sync", "synced"), [(False, ["sync"]), (True, [])])
def test_an_interrupt_keeps_what_was_reached(skip_sync: bool, synced: list[str]) -> None:
    worlds = Worlds(Recorded(), [HostsUpdatedInterrupt(skip_sync), "result"], [])
    assert worlds.run()[0] == "result"
    assert worlds.state.calls == ["sync", "train", "save", "restart", "reset", *synced, "train"]


def test_an_interrupt_of_commit_does_not_save_twice() -> None:
    state = Recorded()
    told = False

    def train(state: Recorded) -> None:
        nonlocal told
        if not told:
            told = True
            state.on_hosts_updated(1, HostUpdateResult.added)
        state.commit()

    run_fn(train, lambda: state.calls.append("restart"))(state)
    assert state.calls == ["sync", "save", "restart", "reset", "sync", "save"]


def test_a_second_failure_during_recovery_is_survived() -> None:
    lost = HorovodInternalError("lost")
    worlds = Worlds(Recorded(), [lost, "result"], [lost, lost, None])
    assert worlds.run()[0] == "result"
    # Restored once: there was no world in between in which something could have changed.
    assert worlds.state.calls.count("restore") == 1
    assert worlds.state.calls[3:] == ["restart", "restart", "restart", "reset", "sync", "train"]


def test_a_failure_after_an_interrupt_takes_nothing_back() -> None:
    worlds = Worlds(Recorded(), [HostsUpdatedInterrupt(True), "result"], [HorovodInternalError("lost"), None])
    assert worlds.run()[0] == "result"
    assert "restore" not in worlds.state.calls
    assert worlds.state.calls[-2:] == ["sync", "train"]  # some rank may be new now


def test_a_failure_in_a_callback_is_survived() -> None:
    state = Recorded()
    failures = [HorovodInternalError("lost")]

    def callback() -> None:
        state.calls.append("callback")
        if failures:
            raise failures.pop()

    state.register_reset_callbacks([callback])
    worlds = Worlds(state, [HostsUpdatedInterrupt(False), "result"], [])
    assert worlds.run()[0] == "result"
    assert state.calls.count("callback") == 2 and state.calls.count("restore") == 1


def test_a_failure_in_sync_is_survived() -> None:
    class Failing(Recorded):
        failures = 2

        def sync(self) -> None:
            super().sync()
            if self.failures:
                self.failures -= 1
                raise HorovodInternalError("lost")

    worlds = Worlds(Failing(), ["result"], [])
    assert worlds.run()[0] == "result"
    again = ["restore", "restart", "reset", "sync"]
    assert worlds.state.calls == ["sync", *again, *again, "train"]
    assert elastic_world.progress.commit == 0


def test_a_state_that_was_received_in_part_is_none() -> None:
    class Failing(Recorded):
        def sync(self) -> None:
            raise HorovodInternalError("lost")

    worlds = Worlds(Failing(), [], [KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        worlds.run()
    assert elastic_world.progress.commit == -1


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("rank 1 is gone", "rank 1 is gone"),
        (
            "Graph execution error:\n\nDetected at node x\n  rank 2 (host b) was silent\n\t [[{{node}}]]",
            "rank 2 (host b) was silent",
        ),
        ("\nlost\nmore", "lost"),
        ("", ""),
    ],
)
def test_the_launcher_is_told_the_cause(text: str, cause: str) -> None:
    told: list[str] = []

    def restart(why: str) -> None:
        told.append(why)

    worlds = Worlds(Recorded(), [HorovodInternalError(text), "result"], [])
    elastic._wrapped(worlds.train, restart, contextlib.nullcontext)(worlds.state)
    assert told == [cause]


def test_other_errors_are_passed_on() -> None:
    worlds = Worlds(Recorded(), [RuntimeError("mine")], [])
    with pytest.raises(RuntimeError, match="mine"):
        worlds.run()
    assert worlds.state.calls == ["sync", "train"]


def test_leaving_the_job_is_passed_on() -> None:
    worlds = Worlds(Recorded(), [HostsUpdatedInterrupt(True)], [SystemExit(0)])
    with pytest.raises(SystemExit):
        worlds.run()


def test_commits_are_counted_from_the_first_sync() -> None:
    state = alone(epoch=0)
    state.commit()
    assert state._commits == -1

    def train(state: ObjectState) -> list[int]:
        seen = []
        for _ in range(3):
            state.commit()
            seen.append(elastic_world.progress.commit)
        return seen

    assert run_fn(train, lambda: None)(state) == [1, 2, 3]


def test_listeners_hear_of_hosts_while_the_function_runs() -> None:
    state = Recorded()

    def train(state: Recorded) -> bool:
        notification_manager.handle_hosts_updated(1, HostUpdateResult.added)
        return state._host_messages.empty()

    assert run_fn(train, lambda: None)(state) is False
    notification_manager.handle_hosts_updated(2, HostUpdateResult.added)
    assert state._host_messages.qsize() == 1


def test_the_function_needs_a_state() -> None:
    with pytest.raises(TypeError, match="the state as its first argument"):
        elastic.run_fn(lambda: None, lambda: None)()


@pytest.mark.parametrize("seed", range(30))
def test_random_histories_of_a_training(seed: int) -> None:
    """Steps, commits, checks, failures and interrupts at random: no committed step is lost or done twice."""
    chance = random.Random(seed)
    state = alone(done=[], rolled_back=0)
    wanted = 60
    history: list[int] = []  # what the model says was kept

    def train(state: ObjectState) -> list[int]:
        nonlocal history
        history = list(state.done)
        while len(state.done) < wanted:
            state.done.append(len(state.done))
            what = chance.random()
            if what < 0.1:
                raise HorovodInternalError("lost")
            if what < 0.2:
                state.on_hosts_updated(
                    state._last_updated_timestamp + 1, chance.choice(list(HostUpdateResult))
                )
            if what < 0.15:
                history = list(state.done)
                state.check_host_updates()
            elif what < 0.7:
                history = list(state.done)
                state.commit()
        return copy.copy(state.done)

    def reset() -> None:
        assert state.done == history
        if chance.random() < 0.3:
            raise HorovodInternalError("lost again")

    assert run_fn(train, reset)(state) == list(range(wanted))
