"""Which worlds are being built, who has joined, what has failed: the rendezvous server's logic
without I/O.

A client joins a scope as one rank. A scope whose name begins with "<rank>-<rank>...:" is about
these of the launched ranks, renumbered in that order, any other is about all of them. When all
ranks are there, each learns who shares a host with whom. Then the ranks meet in stages: each hands
in a value, and gets those of the ranks that it asks for, so that what is sent in all does not grow
with the square of their number; the last stage ends the scope. Whatever goes wrong with one rank
fails the scope for all of them with the same text. Time is an argument (time.monotonic); every
method returns what to send to whom.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from horovod._bootstrap.rendezvous.protocol import CROWDED_SECONDS, READY, STAGES
from horovod._bootstrap.rendezvous.roster import Ranges, checked, pack, pack_hosts, ranks_of
from horovod._net.frames import FrameError, Message

PING_SECONDS = 0.5
# After the join a client that runs out of time says itself what it was waiting for, so it may speak
# first.
_GRACE_SECONDS = 1.0
_MAX_SIZE = 1 << 20
_NAMED = 16  # ranks listed in a message
_PROBLEM_CHARACTERS = 2000


@dataclass(frozen=True)
class Outgoing:
    """A message to a client; `last` = nothing follows and the connection is to be closed."""

    client: int
    message: Message
    last: bool = False


@dataclass(frozen=True)
class EndedScope:
    """A scope that is over: complete (no text), or failed.

    Those at fault are clients whose connection was lost or that fell silent; `missing` are ranks
    that did not come in time; `pair` are two clients that don't reach each other.
    """

    name: str
    text: str | None
    at_fault: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    pair: tuple[int, ...] = ()


class Share(NamedTuple):
    """What a rank hands in at a stage, and whose values it asks for."""

    value: Any
    problem: str  # what is in the way of what the ranks are about to do, if anything
    ranges: Ranges


@dataclass
class Member:
    """A process that has joined."""

    client: int
    rank: int
    size: int
    host: str
    pid: int
    agree: dict[str, str]  # what must be the same on all ranks, by the name used in messages
    timeout: float
    peer_timeout: float
    deadline: float
    heard: float
    pinged: float
    stages: int = 0  # of STAGES that are behind it, or that it waits at
    share: Share | None = None  # while it waits

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host}, pid {self.pid})"


class _Scope:
    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.members: dict[int, Member] = {}  # by rank
        self.stage_counts = [0] * len(STAGES)
        listed, colon, _ = name.partition(":")
        words = listed.split("-") if colon else []
        # Only ASCII: isdigit() is true of more than int() takes.
        self._renumbered = {
            int(word): rank for rank, word in enumerate(words) if word.isascii() and word.isdigit()
        }

    @property
    def complete(self) -> bool:
        return len(self.members) == self.size

    def number(self, launched: int) -> int | None:
        """The rank that a launched rank has in this scope; None if it has none."""
        numbers = self._renumbered.get(launched) if self._renumbered else launched
        return numbers if numbers is not None and numbers < self.size else None

    def launched(self, rank: int) -> int:
        """The opposite of number()."""
        return next((old for old, new in self._renumbered.items() if new == rank), rank)

    def missing(self) -> list[int]:
        return [rank for rank in range(self.size) if rank not in self.members]


class Membership:
    """All scopes of a server."""

    def __init__(self) -> None:
        self._scopes: dict[str, _Scope] = {}
        self._clients: dict[int, tuple[_Scope, Member]] = {}
        self._failed_scopes: dict[str, tuple[str, float]] = {}  # name -> text, when to forget it
        self._failed_ranks: dict[int, str] = {}
        self._ended: list[EndedScope] = []

    @property
    def idle(self) -> bool:
        """Nothing is being built, so there is nothing to ping or to time out."""
        return not self._clients and not self._failed_scopes

    def join(self, client: int, message: Message, now: float) -> list[Outgoing]:
        """A client's first message."""
        try:
            name, member = _parse_join(client, message, now)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            return [failure(client, f"the rendezvous server did not understand a join ({error!r})")]
        # The others have been told; a late rank must not wait for them
        if name in self._failed_scopes:
            return [failure(client, self._failed_scopes[name][0])]
        scope = self._scopes.setdefault(name, _Scope(name, member.size))
        # A new process has taken the place of the one that failed.
        self._failed_ranks.pop(scope.launched(member.rank), None)
        problem = _disagreement(scope, member)
        if problem:
            return [failure(client, problem), *self._fail(scope, problem, now)]
        scope.members[member.rank] = member
        self._clients[client] = (scope, member)
        for launched, text in self._failed_ranks.items():
            rank = scope.number(launched)
            if rank is not None and rank not in scope.members:
                return self._fail(scope, f"rank {rank} failed: {text}", now)
        if not scope.complete:
            return []
        hosts = pack_hosts([scope.members[rank].host for rank in range(scope.size)])
        # Unguessable and new for every world: binds the connections between the ranks to this one.
        world: Message = {"type": "world", "token": secrets.token_hex(16), "hosts": hosts}
        return [Outgoing(each.client, world) for each in scope.members.values()]

    def share(self, client: int, message: Message, now: float) -> list[Outgoing]:
        """A rank has reached a stage. When all have, each gets the values that it has asked for, in
        rank order, and the problem of the lowest rank that has one.
        """
        if client not in self._clients:
            return []
        scope, member = self._clients[client]
        try:
            number = _stage(message["stage"])
            if not scope.complete or number < member.stages or member.share is not None:
                raise ValueError(f"it can't be at the stage {STAGES[number]!r} now")
            member.share = _parse_share(message, scope.size)
        except (KeyError, TypeError, ValueError) as error:
            return self._fail(scope, f"{member} broke the rendezvous protocol: {error}", now)
        member.stages = number + 1
        scope.stage_counts[number] += 1
        if scope.stage_counts[number] < scope.size:
            return []
        try:
            answers = _answers(scope, STAGES[number])
        except (FrameError, RecursionError) as error:
            return self._fail(scope, str(error), now)
        last = STAGES[number] == READY
        if last:
            self._forget(scope)
            self._ended.append(EndedScope(scope.name, None))
        return [Outgoing(each, answer, last) for each, answer in answers.items()]

    def heard(self, client: int, now: float) -> None:
        """Something arrived from a client."""
        if client in self._clients:
            self._clients[client][1].heard = now

    def leave(self, client: int, text: str, now: float) -> list[Outgoing]:
        """A client's connection is gone; `text` continues "rank 1 (host a, pid 5) ..."."""
        if client not in self._clients:
            return []
        scope, member = self._clients[client]
        return self._fail(scope, f"{member} {text}", now, (client,))

    def give_up(self, client: int, text: str, unreached: int | None, now: float) -> list[Outgoing]:
        """A client gave up, perhaps because of another rank, to which it has no connection."""
        if client not in self._clients:
            return []
        scope, member = self._clients[client]
        other = None if unreached is None else scope.members.get(unreached)
        # Whose fault that is, nobody knows who has only heard one of the two.
        pair = () if other is None else (client, other.client)
        return self._fail(scope, f"{member} {text}", now, pair=pair)

    def rank_failed(self, rank: int, text: str, now: float) -> list[Outgoing]:
        """A rank's process has ended: fails what is being built, until that rank joins again."""
        self._failed_ranks[rank] = text
        out: list[Outgoing] = []
        for scope in list(self._scopes.values()):
            number = scope.number(rank)
            if number is not None:
                who = str(scope.members[number]) if number in scope.members else f"rank {number}"
                out += self._fail(scope, f"{who} failed: {text}", now)
        return out

    def fail(self, scope: EndedScope, now: float, forget_at: float) -> list[Outgoing]:
        """Fails a scope, also for those that join it later."""
        known = self._scopes.get(scope.name)
        out = [] if known is None else self._fail(known, str(scope.text), now, scope.at_fault)
        self._failed_scopes[scope.name] = (str(scope.text), forget_at)
        return out

    def failure_of(self, name: str) -> str | None:
        """Why a scope has failed, while that is remembered."""
        return self._failed_scopes[name][0] if name in self._failed_scopes else None

    def take_ended(self) -> list[EndedScope]:
        """The scopes that were completed or have failed since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def clear_failures(self) -> None:
        """Forgets failed ranks: the rank numbers now stand for other processes."""
        self._failed_ranks.clear()

    def postpone(self, seconds: float) -> None:
        """The server itself was stopped for so long: nobody could have been heard."""
        for _, member in self._clients.values():
            member.heard += seconds
            member.deadline += seconds

    def tick(self, now: float) -> list[Outgoing]:
        """Pings, and failures by silence or deadline."""
        self._failed_scopes = {n: entry for n, entry in self._failed_scopes.items() if entry[1] > now}
        out: list[Outgoing] = []
        for scope in list(self._scopes.values()):
            problem = _overdue(scope, now)
            if problem is not None:
                out += self._fail(scope, problem.text, now, problem.at_fault, problem.missing)
                continue
            for member in scope.members.values():
                if now - member.pinged >= min(PING_SECONDS, member.peer_timeout / 4):
                    member.pinged = now
                    out.append(Outgoing(member.client, {"type": "ping"}))
        return out

    def _fail(
        self,
        scope: _Scope,
        text: str,
        now: float,
        at_fault: tuple[int, ...] = (),
        missing: tuple[int, ...] = (),
        pair: tuple[int, ...] = (),
    ) -> list[Outgoing]:
        self._forget(scope)
        self._ended.append(EndedScope(scope.name, text, at_fault, missing, pair))
        # Ranks that are still starting get the same answer when they come; those that come later
        # than anyone was ready to wait belong to another attempt.
        until = max((member.deadline for member in scope.members.values()), default=now)
        self._failed_scopes[scope.name] = (text, until)
        return [failure(member.client, text) for member in scope.members.values()]

    def _forget(self, scope: _Scope) -> None:
        del self._scopes[scope.name]
        for member in scope.members.values():
            del self._clients[member.client]


def failure(client: int, text: str) -> Outgoing:
    """The last message to a client that can't go on."""
    return Outgoing(client, {"type": "error", "text": text}, last=True)


def _parse_join(client: int, message: Message, now: float) -> tuple[str, Member]:
    rank, size = int(message["rank"]), int(message["size"])
    if not 0 <= rank < size <= _MAX_SIZE:
        raise ValueError(f"rank {rank} of {size}")
    timeout, peer_timeout, remaining = (
        float(message[name]) for name in ("timeout", "peer_timeout", "remaining")
    )
    if not all(map(math.isfinite, (timeout, peer_timeout, remaining))):
        # Of an infinite number, or a text that stands for one
        raise ValueError("a time that never comes")
    member = Member(
        client=client,
        rank=rank,
        size=size,
        host=str(message["host"]),
        pid=int(message["pid"]),
        agree={str(name): str(value) for name, value in message["agree"].items()},
        timeout=timeout,
        peer_timeout=peer_timeout,
        deadline=now + remaining,
        heard=now,
        pinged=now,
    )
    return str(message["scope"]), member


def _stage(name: Any) -> int:
    if name not in STAGES:
        raise ValueError(f"there is no stage {str(name)[:40]!r}")
    return STAGES.index(name)


def _parse_share(message: Message, size: int) -> Share:
    problem = str(message.get("problem", ""))[:_PROBLEM_CHARACTERS]
    return Share(message.get("value"), problem, checked(message.get("of", []), size))


def _answers(scope: _Scope, stage: str) -> dict[int, Message]:
    """What each client gets at the end of a stage; the shares are forgotten. FrameError."""
    members = [scope.members[rank] for rank in range(scope.size)]
    shares = [member.share for member in members if member.share is not None]
    problem = next((share.problem for share in shares if share.problem), "")
    common: Message = {"type": "shared", "stage": stage, "problem": problem}
    answers: dict[Ranges, Message] = {(): common}  # the same object for all who ask the same
    for ranges in {share.ranges: None for share in shares}:
        if ranges:
            answers[ranges] = {**common, "values": pack([shares[rank].value for rank in ranks_of(ranges)])}
    for member in members:
        member.share = None
    return {member.client: answers[share.ranges] for member, share in zip(members, shares, strict=True)}


def _disagreement(scope: _Scope, member: Member) -> str | None:
    """Why a newcomer can't be in the same world as those already there."""
    twin = scope.members.get(member.rank)
    if twin is not None:
        return (
            f"two processes joined as rank {member.rank}: host {twin.host}, pid {twin.pid} and "
            f"host {member.host}, pid {member.pid}; each process needs its own HOROVOD_RANK"
        )
    other = next(iter(scope.members.values()), None)  # those already there agree with each other
    if other is None:
        return None
    if other.size != member.size:
        return f"{other} expects {other.size} ranks, but {member} expects {member.size}"
    for name in sorted(other.agree.keys() | member.agree.keys()):
        here, there = other.agree.get(name, "nothing"), member.agree.get(name, "nothing")
        if here != there:
            return (
                f"{name} must be the same on all ranks: {other} has {_cut(here)}, {member} has {_cut(there)}"
            )
    return None


class _Overdue(NamedTuple):
    text: str
    at_fault: tuple[int, ...] = ()  # clients
    missing: tuple[int, ...] = ()  # ranks


def _overdue(scope: _Scope, now: float) -> _Overdue | None:
    neighbours = Counter(member.host for member in scope.members.values())
    for member in scope.members.values():
        patience = max(member.peer_timeout, CROWDED_SECONDS * neighbours[member.host])
        if now - member.heard > patience:
            return _Overdue(
                f"{member} has not answered for {patience:g} s while the ranks were connecting: "
                "its process is stopped or its host can't be reached",
                at_fault=(member.client,),
            )
    first = min(scope.members.values(), key=lambda member: member.deadline)
    if not scope.complete and now >= first.deadline:
        missing = scope.missing()
        return _Overdue(
            f"only {len(scope.members)} of {scope.size} ranks came within {first.timeout:g} s; missing: "
            f"{_ranks(missing)}. See their output for the reason, or give them more time with "
            "HOROVOD_GLOO_TIMEOUT_SECONDS",
            missing=tuple(missing),
        )
    if scope.complete and now >= first.deadline + _GRACE_SECONDS:
        furthest = max(member.stages for member in scope.members.values())
        late = [member for member in scope.members.values() if member.stages < furthest]
        names = ", ".join(str(member) for member in (late or [first])[:_NAMED])
        return _Overdue(f"not connected within {first.timeout:g} s: {names}")
    return None


def _ranks(ranks: list[int]) -> str:
    text = ", ".join(f"rank {rank}" for rank in ranks[:_NAMED])
    return text if len(ranks) <= _NAMED else f"{text} and {len(ranks) - _NAMED} more"


def _cut(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "..."
