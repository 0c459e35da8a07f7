"""A job without processes: carries the decisions of membership() out on paper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from horovod.runner.elastic import changes
from horovod.runner.elastic.membership import Decision, carried_out, membership
from horovod.runner.elastic.state import LIVING, Limits, Phase, State, Worker


class Model:
    """Time passes only in step(); agents answer at once unless told otherwise."""

    def __init__(self, agents: bool = True, **limits: Any) -> None:
        self.now = 100.0
        self.state = State(Limits(**limits), self.now)
        self.decisions: list[Decision] = []  # all that said something
        self.befores: list[State] = []  # what was known when each was made
        self.agents = agents  # whether they answer at once
        self.next_worker = 1
        self.jitter = 0.0

    def discover(self, **hosts: int) -> Model:
        return self.apply(changes.discovered, list(hosts.items()))

    def apply(self, change: Any, *args: Any, **rest: Any) -> Model:
        self.state = change(self.now, self.state, *args, **rest)
        return self.settle()

    def step(self, seconds: float) -> Model:
        self.now += seconds
        return self.apply(changes.tick)

    def settle(self) -> Model:
        """Carries out decisions until there is nothing to do."""
        for _ in range(1000):
            decision = membership(self.now, self.state)
            if decision.stop is not None:
                self.decisions.append(decision)
                self.befores.append(self.state)
                return self
            started = {}
            for slot in decision.start:
                started[slot] = self.next_worker
                self.next_worker += 1
            before = self.state
            self.state = carried_out(self.now, self.state, decision, started, self.jitter)
            if self.agents:
                for host in decision.agents:
                    self.state = changes.agent_ready(self.now, self.state, host)
                for host in decision.release:
                    self.state = changes.agent_ended(self.now, self.state, host)
            if self.state == before:
                assert not (decision.notify or decision.world or decision.start or decision.end), decision
                assert not (decision.agents or decision.release or decision.dismiss), decision
                return self
            self.decisions.append(decision)
            self.befores.append(before)
        raise AssertionError(f"never settles: {membership(self.now, self.state)}")

    @property
    def decision(self) -> Decision:
        """What is to be done now; nothing, unless the job is over."""
        return membership(self.now, self.state)

    @property
    def world(self) -> list[str]:
        """The names of the present members, by rank."""
        return [self.state.workers[number].name for number in self.state.members]

    def worker(self, name: str) -> Worker:
        """The living one in a slot."""
        return next(
            each for each in self.state.workers.values() if each.name == name and each.phase in LIVING
        )

    def enlist(self, names: Iterable[str], **rest: Any) -> Model:
        for name in names:
            worker = self.worker(name)
            self.apply(changes.enlisted, worker.id, generation=worker.generation, **rest)
        return self

    def exit(self, name: str, code: int) -> Model:
        return self.apply(changes.exited, self.worker(name).id, code, f"exited with code {code}", self.jitter)

    def finish_leaving(self) -> Model:
        """Workers that were told to go, or are being ended, go."""
        for worker in list(self.state.workers.values()):
            if worker.phase in (Phase.LEAVING, Phase.CONDEMNED):
                self.apply(changes.exited, worker.id, 0, "exited with code 0", self.jitter)
        return self

    def begin(self, **hosts: int) -> Model:
        """The first world stands."""
        self.discover(**hosts)
        names = [worker.name for worker in self.state.workers.values()]
        self.enlist(names)
        assert self.state.generation == 1, self.decision
        return self
