"""Random sequences of events for an elastic launcher: whatever happens, its decisions make sense."""

from __future__ import annotations

import math
import random

from elastic_model import Model

from horovod.runner.elastic import changes
from horovod.runner.elastic.membership import Decision
from horovod.runner.elastic.state import LIVING, WAITING, Agent, Phase, State


def test_every_sequence_of_events() -> None:
    """Whatever happens: ranks are a permutation, nobody dead is in a world, somebody has the newest
    state, and nothing waits for ever."""
    for seed in range(150):
        _fuzz(random.Random(seed), f"seed {seed}")


def _fuzz(chance: random.Random, name: str) -> None:
    least = chance.randint(1, 3)
    start = least + chance.randint(0, 2)
    model = Model(
        agents=chance.random() < 0.5,
        start=start,
        least=least,
        most=chance.choice([None, start, start + 2]),
        reset_limit=chance.choice([None, None, 20]),
        elastic_timeout=chance.choice([5.0, 600.0]),
        cooldown=chance.choice([None, (1, 8)]),
        failures_before_blacklist=chance.choice([1, 3, 50]),
        warm_join=chance.random() < 0.8,
        durable=chance.random() < 0.3,
    )
    hosts = {host: chance.randint(1, 3) for host in "abc"}
    model.discover(**hosts)
    for _ in range(chance.randint(10, 80)):
        before = len(model.decisions)
        model.jitter = chance.random()
        _event(chance, model, hosts)
        for state, decision in list(zip(model.befores, model.decisions, strict=True))[before:]:
            _check(state, decision, name)
        if model.decision.stop is not None:
            return
        _check_waiting(model, name)


def _event(chance: random.Random, model: Model, hosts: dict[str, int]) -> None:
    kind = chance.randrange(10)
    state = model.state
    living = [worker for worker in state.workers.values() if worker.phase in LIVING]
    if kind == 0:
        host = chance.choice("abcd")
        hosts[host] = chance.randint(0, 3)
        model.discover(**{each: slots for each, slots in hosts.items() if slots or chance.random() < 0.5})
    elif kind == 1 and living:
        worker = chance.choice(living)
        model.apply(changes.exited, worker.id, chance.choice([1, -9, 1, -9, 0]), "ended", model.jitter)
    elif kind == 2:
        model.step(chance.choice([0.1, 1.0, 4.0, 30.0]))
    elif kind == 3:
        model.finish_leaving()
    elif kind == 4:
        host = chance.choice(list(state.hosts))
        if state.hosts[host].agent is Agent.STARTING:
            model.apply(changes.agent_ready, host, chance.choice(["x", "y"]))
        elif state.hosts[host].agent is Agent.STOPPING:
            model.apply(changes.agent_ended, host)
        elif state.hosts[host].agent is Agent.READY and chance.random() < 0.3:
            model.apply(changes.agent_lost, host, "gone", model.jitter)
        elif state.hosts[host].agent is Agent.READY and chance.random() < 0.2:
            model.apply(changes.agent_leaving, host, "notice")
    elif kind == 5 and living:
        worker = chance.choice(living)
        model.apply(changes.withdrawn, worker.id, "gone")
    elif living:
        # Most of the time: somebody comes, or all of a world do.
        culprit = chance.choice([None, chance.randint(0, 4)])
        commit = state.newest + chance.randint(0, 1)
        some = living if chance.random() < 0.5 else [chance.choice(living)]
        for worker in some:
            if model.decision.stop is None:
                model.apply(
                    changes.enlisted,
                    worker.id,
                    generation=worker.generation,
                    commit=commit if worker.generation else -1,
                    rolled_back=chance.random() < 0.5,
                    culprit=culprit,
                    silent=chance.random() < 0.5,
                    jitter=model.jitter,
                )


def _check(before: State, decision: Decision, name: str) -> None:
    limits = before.limits
    assert set(decision.why) == set(before.hosts) and all(decision.why.values()), name
    if decision.world is None:
        return
    world = decision.world
    assert len(set(world)) == len(world), name
    assert limits.least <= len(world) <= (limits.most or len(world)), name
    workers = [before.workers[number] for number in world]
    assert all(worker.phase in WAITING for worker in workers), f"{name}: somebody who is not there"
    assert len({(worker.host, worker.slot) for worker in workers}) == len(world), f"{name}: two in a slot"
    assert workers[decision.source].commit == max(worker.commit for worker in workers), name
    survivors = [number for number in before.members if number in world]
    assert [number for number in world if number in before.members] == survivors, f"{name}: another order"
    assert decision.reason, name
    if not decision.sync:
        assert decision.source == 0, name
        assert all(worker.generation and not worker.rolled_back for worker in workers), name


def _check_waiting(model: Model, name: str) -> None:
    """Who waits has something to wait for: a time, or a process that will do something."""
    state, decision = model.state, model.decision
    members = [state.workers[number] for number in state.members]
    assert [each.rank for each in members] == list(range(len(members))), name
    places = [(state.hosts[each.host].order, each.slot) for each in members if each.phase in LIVING]
    if all(each.phase is Phase.ACTIVE for each in members) and not state.news:
        assert places == sorted(places), f"{name}: ranks are in the order of hosts"
    if decision.look_again < math.inf:
        assert decision.look_again > model.now, name
        return
    assert changes.bereft_since(state) == math.inf, f"{name}: who is left may be stopped"
    moving = any(
        each.phase in (Phase.SPAWNED, Phase.ACTIVE, Phase.CONDEMNED, Phase.LEAVING)
        for each in state.workers.values()
    )
    agents = any(host.agent in (Agent.STARTING, Agent.STOPPING) for host in state.hosts.values())
    assert moving or agents, f"{name}: a silent wait: {decision}"
