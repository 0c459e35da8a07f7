"""What an elastic launcher knows about its job: data without behaviour, never changed in place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Agent(Enum):
    """The agent of a host."""

    NONE = "has no agent yet"
    STARTING = "is being connected to"
    READY = "has an agent"
    STOPPING = "is being released"


class Phase(Enum):
    """Where a worker is in its life."""

    SPAWNED = "started"
    STANDBY = "waits in init() for its first world"
    ACTIVE = "is in a world"
    ENLISTED = "waits in init() for the next world"
    LEAVING = "was told that it is removed"
    CONDEMNED = "is being ended"
    FINISHED = "exited with code 0"
    FAILED = "failed"


LIVING = frozenset((Phase.SPAWNED, Phase.STANDBY, Phase.ACTIVE, Phase.ENLISTED))
WAITING = frozenset((Phase.STANDBY, Phase.ENLISTED))
PRESENT = LIVING | {Phase.LEAVING, Phase.CONDEMNED}  # its process may be there


@dataclass(frozen=True)
class Host:
    """A host that discovery has named, now or earlier."""

    name: str
    slots: int  # 0: not listed now
    order: int  # of first sight; a new one after each absence, also one that we wanted
    agent: Agent = Agent.NONE
    boot_id: str = ""
    failures: int = 0  # since the last that was forgotten
    blacklisted: int = 0  # how often
    failed_at: float = -math.inf
    not_before: float = 0.0  # when it may take part again; 0: now
    left: bool = False  # it has said that it goes away; until it has been missing from the list
    why: str = ""  # it is not used


@dataclass(frozen=True)
class Worker:
    """A process; ``id`` is never used twice."""

    id: int
    host: str
    slot: int
    since: float  # in this phase
    phase: Phase = Phase.SPAWNED
    generation: int = 0  # of the last world that it was in
    rank: int = -1  # there
    commit: int = -1  # of its state; -1: has none
    rolled_back: bool = False
    accused: float = math.inf  # when it counts as dead if it does not come
    heard: float = -math.inf  # when it last answered the launcher
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.host}[{self.slot}]"


@dataclass(frozen=True)
class Failure:
    """A worker that failed by itself."""

    worker: int
    name: str
    rank: int
    code: int
    what: str


@dataclass(frozen=True)
class Limits:
    """What the user allows."""

    start: int
    least: int
    most: int | None = None
    reset_limit: int | None = None
    elastic_timeout: float = 600.0
    cooldown: tuple[int, int] | None = None
    failures_before_blacklist: int = 1
    warm_join: bool = True
    fixed: bool = False  # no further hosts can come
    durable: bool = False  # a commit on disk can replace survivors


@dataclass(frozen=True)
class State:
    """The whole of it. ``members`` are the workers of the present world, by rank."""

    limits: Limits
    began: float
    hosts: Mapping[str, Host] = field(default_factory=dict)
    workers: Mapping[int, Worker] = field(default_factory=dict)
    next_order: int = 0
    generation: int = 0
    members: tuple[int, ...] = ()
    short_since: float | None = None  # too few slots since then
    newest: int = -1  # commit that any worker has had
    formed_with: int = -2  # the newest commit when the present world was formed
    futile: int = 0  # resets in a row that changed nobody and saw no commit
    unconnected: bool = False  # the present world never stood
    finished: tuple[int, ...] = ()  # members of the present world that exited with 0
    failures: tuple[Failure, ...] = ()  # in order
    news: tuple[str, ...] = ()  # since the last world was formed
    announced: tuple[tuple[str, int], ...] = ()  # slots that the workers know about
    accusation: str = ""  # the last error that a worker came back with
    accusers: frozenset[tuple[int, int]] = frozenset()  # who accuses whom of having ended this world

    def member(self, rank: int) -> Worker:
        return self.workers[self.members[rank]]
