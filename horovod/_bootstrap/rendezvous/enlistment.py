"""Which workers of an elastic job ask for a place in the next world: the server's part without I/O.

A worker is a process, with a number that no other one of the job ever gets. Its first message
enlists it; then it waits, pinged like a member, until it is assigned a rank in a generation of the
job, or told that it is not wanted any more. With an assignment it joins the scope of that
generation, see Membership, and no other. What the launcher has to know is collected as events. Time
is an argument (time.monotonic); every method returns what to send to whom.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from horovod._bootstrap.rendezvous.membership import PING_SECONDS, EndedScope, Outgoing, failure
from horovod._net.frames import Message

_WHY_CHARACTERS = 500
_REMEMBERED = 8  # generations whose members are known: a late end of one is still to be told


@dataclass(frozen=True)
class Enlisted:
    """A worker asks for a place.

    `generation` is the last world that it was in (0: none), `culprit` the rank there that its
    engine has accused, `silent` whether that one has not ended but is not heard any more, `commit`
    counts the states that it has saved (-1: it has none).
    """

    worker: int
    pid: int
    generation: int
    commit: int
    rolled_back: bool
    culprit: int | None
    why: str
    silent: bool = False


@dataclass(frozen=True)
class Withdrawn:
    """An enlisted worker that has no assignment yet is gone, or does not answer."""

    worker: int
    text: str


@dataclass(frozen=True)
class WorldReady:
    """All members of a generation are connected."""

    generation: int


@dataclass(frozen=True)
class WorldFailed:
    """A generation could not be connected; `workers` are those at fault, if that is known, or `pair`
    two that don't reach each other.

    All that live enlist again.
    """

    generation: int
    text: str
    workers: tuple[int, ...] = ()
    pair: tuple[int, ...] = ()


Event = Enlisted | Withdrawn | WorldReady | WorldFailed


def scope_of(generation: int) -> str:
    """The name of the scope in which the members of a generation meet."""
    return f"generation.{generation}"


@dataclass
class _Waiting:
    worker: int
    peer_timeout: float
    heard: float
    pinged: float


class Enlistments:
    """All workers of a job. `events` is for the caller to empty."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._expected: set[int] = set()
        self._refused: dict[int, str] = {}  # by worker: why
        self._waiting: dict[int, _Waiting] = {}  # by client: those without an assignment
        self._unjoined: dict[int, _Waiting] = {}  # by client: those that have one, but have not joined
        self._clients: dict[int, int] = {}  # by worker: where it waits or has been assigned
        self._places: dict[int, tuple[int, int, int]] = {}  # by client: generation, rank, size
        self._members: dict[int, dict[int, int]] = {}  # by generation: the worker of each rank

    def expect(self, worker: int) -> None:
        """A worker of this number is about to be started."""
        self._expected.add(worker)

    def refuse(self, worker: int, text: str) -> list[Outgoing]:
        """It has no place any more, now or whenever it comes."""
        self._refused.setdefault(worker, text)
        client = self._clients.get(worker)
        if client is None or client not in self._waiting:
            return []
        self._forget(client)
        return [_removed(client, self._refused[worker])]

    def ended(self, worker: int, text: str) -> list[EndedScope]:
        """Its process is gone. Returns the scope that has to fail, if it was to be a member."""
        self._refused.setdefault(worker, text)
        client = self._clients.get(worker)
        if client is None:
            return []
        place = self._places.get(client)
        if place is not None:
            return [EndedScope(scope_of(place[0]), text, (client,))]
        self._forget(client)
        return []

    def enlist(self, client: int, message: Message, now: float) -> list[Outgoing]:
        """A client's first message."""
        try:
            event, peer_timeout = _parse(message)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            return [failure(client, f"the rendezvous server did not understand an enlistment ({error!r})")]
        worker = event.worker
        if worker in self._refused:
            return [_removed(client, self._refused[worker])]
        if worker not in self._expected:
            return [failure(client, f"this job has no worker {worker}: it was not started by its launcher")]
        out: list[Outgoing] = []
        earlier = self._clients.get(worker)
        if earlier is not None:
            self._forget(earlier)
            out.append(failure(earlier, f"worker {worker} has enlisted again"))
        self._waiting[client] = _Waiting(worker, peer_timeout, now, now)
        self._clients[worker] = client
        self.events.append(event)
        return out

    def assign(self, assignments: Mapping[int, Message]) -> tuple[list[Outgoing], list[EndedScope]]:
        """Gives all members of a generation their places.

        If one of them is gone meanwhile, the generation fails at once.
        """
        out: list[Outgoing] = []
        missing: list[int] = []  # ranks
        generation = -1
        members: dict[int, int] = {}
        for worker, assignment in assignments.items():
            generation = int(assignment["generation"])
            members[int(assignment["rank"])] = worker
            client = self._clients.get(worker, -1)
            waiting = self._waiting.pop(client, None)
            if waiting is None:
                missing.append(int(assignment["rank"]))
                continue
            self._unjoined[client] = waiting
            self._places[client] = (generation, int(assignment["rank"]), int(assignment["size"]))
            out.append(Outgoing(client, {**assignment, "type": "assignment"}))
        self._members[generation] = members
        while len(self._members) > _REMEMBERED:
            del self._members[min(self._members)]
        if not missing:
            return out, []
        text = f"rank {missing[0]} of generation {generation} was gone before it could be told its place"
        return out, [EndedScope(scope_of(generation), text, missing=tuple(missing))]

    def join(self, client: int, message: Message) -> str | None:
        """Why a client can't join what it wants to; None if it has been assigned to it."""
        self._unjoined.pop(client, None)  # from now on Membership pings it
        place = self._places.get(client)
        wanted = message.get("scope"), message.get("rank"), message.get("size")
        if place is None:
            return "in an elastic job only workers that have been assigned a rank join a world"
        if wanted != (scope_of(place[0]), place[1], place[2]):
            return f"assigned to rank {place[1]} of {place[2]} in generation {place[0]}, not to {wanted!r}"
        return None

    def on_ended(self, scope: EndedScope) -> None:
        """A scope is complete, or has failed."""
        word, _, number = scope.name.partition(".")
        if word != "generation" or not number.isdigit():
            return
        generation = int(number)
        members = {client for client, place in self._places.items() if place[0] == generation}
        by_client = {client: worker for worker, client in self._clients.items()}
        at_fault = {by_client[client] for client in scope.at_fault if client in by_client}
        pair = tuple(sorted(by_client[client] for client in scope.pair if client in by_client))
        at_fault |= {self._members.get(generation, {}).get(rank, -1) for rank in scope.missing} - {-1}
        for client in members:
            self._forget(client)
        if scope.text is None:
            self.events.append(WorldReady(generation))
        else:
            self.events.append(WorldFailed(generation, scope.text, tuple(sorted(at_fault)), pair))

    def heard(self, client: int, now: float) -> None:
        """Something arrived from a client."""
        waiting = self._waiting.get(client) or self._unjoined.get(client)
        if waiting is not None:
            waiting.heard = now

    def leave(self, client: int, text: str) -> list[EndedScope]:
        """A client's connection is gone. Returns the scope that it was to join, if it has not."""
        waiting = self._waiting.get(client)
        if waiting is not None:
            self._forget(client)
            self.events.append(Withdrawn(waiting.worker, text))
            return []
        place = self._places.get(client)
        if place is None:
            return []
        rank = f"rank {place[1]} of generation {place[0]}"
        return [EndedScope(scope_of(place[0]), f"{rank} {text}", (client,))]

    def postpone(self, seconds: float) -> None:
        """The server itself was stopped for so long: nobody could have been heard."""
        for waiting in (*self._waiting.values(), *self._unjoined.values()):
            waiting.heard += seconds

    def tick(self, now: float) -> tuple[list[Outgoing], list[EndedScope]]:
        """Pings, ends by silence, and the scopes that these fail."""
        out: list[Outgoing] = []
        failed: list[EndedScope] = []
        for client, waiting in [*self._waiting.items(), *self._unjoined.items()]:
            if now - waiting.heard > waiting.peer_timeout:
                text = f"has not answered for {waiting.peer_timeout:g} s while it waited for a place"
                failed += self.leave(client, text)
                out.append(failure(client, f"worker {waiting.worker} {text}"))
            elif now - waiting.pinged >= min(PING_SECONDS, waiting.peer_timeout / 4):
                waiting.pinged = now
                out.append(Outgoing(client, {"type": "ping"}))
        return out, failed

    def _forget(self, client: int) -> None:
        self._waiting.pop(client, None)
        self._unjoined.pop(client, None)
        self._places.pop(client, None)
        for worker in [worker for worker, at in self._clients.items() if at == client]:
            del self._clients[worker]


def _removed(client: int, text: str) -> Outgoing:
    return Outgoing(client, {"type": "removed", "text": text}, last=True)


def _parse(message: Message) -> tuple[Enlisted, float]:
    culprit = message.get("culprit")
    event = Enlisted(
        worker=int(message["worker"]),
        pid=int(message["pid"]),
        generation=int(message["generation"]),
        commit=int(message["commit"]),
        rolled_back=bool(message["rolled_back"]),
        culprit=None if culprit is None else int(culprit),
        why=str(message["why"])[:_WHY_CHARACTERS],
        silent=bool(message.get("silent", False)),
    )
    peer_timeout = float(message["peer_timeout"])
    if not math.isfinite(peer_timeout) or peer_timeout <= 0:
        raise ValueError("a time that never comes")
    return event, peer_timeout
