"""A new world in words and messages: what its workers, the user and the events file are told. Pure
functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from horovod._net.frames import Message
from horovod.runner.elastic import changes
from horovod.runner.elastic.membership import Decision
from horovod.runner.elastic.state import Phase, State, Worker
from horovod.runner.plan.hosts import SlotInfo

# Seconds that ranks wait for others before that is said; at the start hosts may differ in speed
_PATIENCE = 5.0
_PATIENCE_AT_START = 30.0


def assignment(
    decision: Decision, generation: int, slot: SlotInfo, addresses: Sequence[str], sequence: int
) -> Message:
    """What one worker is told; ``sequence`` is that of the last notice that the world knows of."""
    return {
        "generation": generation,
        **slot.place().numbers(),
        "addresses": list(addresses),
        "sync": decision.sync,
        "source": decision.source,
        "reason": decision.reason,
        "sequence": sequence,
        "load": decision.load,
    }


def waiting(state: State, decision: Decision) -> tuple[float, str]:
    """When to say what is waited for, if that goes on, and the line; infinity if nobody waits."""
    if state.generation:
        phase, patience, since = Phase.ENLISTED, _PATIENCE, changes.bereft_since(state)
        alone = "another rank has ended; the job waits"
    else:
        phase, patience, since = Phase.STANDBY, _PATIENCE_AT_START, state.short_since or math.inf
        alone = "the job waits"
    ranks = [worker.since for worker in state.workers.values() if worker.phase is phase]
    if not decision.waiting:
        return math.inf, ""
    who = alone
    if ranks:
        who = f"{len(ranks)} ranks wait" if len(ranks) > 1 else "1 rank waits"
    return min(ranks, default=since) + patience, f"{who} for {decision.waiting}"


def sentence(decision: Decision, generation: int, workers: Sequence[Worker], before: int) -> str:
    """The line on the console; ``before`` is the size of the last world."""
    hosts: dict[str, int] = {}
    for worker in workers:
        hosts[worker.host] = hosts.get(worker.host, 0) + 1
    where = ", ".join(f"{host}:{count}" for host, count in hosts.items())
    ranks = f"{len(workers)} rank{'s' if len(workers) > 1 else ''}"
    were = f" (were {before})" if before else ""
    return f"generation {generation}: {ranks} on {where}{were}; {decision.reason}"


def record(
    now: float,
    state: State,
    decision: Decision,
    generation: int,
    workers: Sequence[Worker],
    pids: Mapping[int, int],
) -> dict[str, Any]:
    """The line in the events file."""

    def described(worker: Worker, rank: int) -> dict[str, Any]:
        return {
            "worker": worker.id,
            "host": worker.host,
            "slot": worker.slot,
            "rank": rank,
            "pid": pids.get(worker.id),
        }

    before = [state.workers[number] for number in state.members]
    asked = [worker.since for worker in before if worker.phase is Phase.ENLISTED]
    failed = [worker.since for worker in before if worker.phase is Phase.FAILED]
    last = max(asked, default=now)
    return {
        "generation": generation,
        "members": [described(worker, rank) for rank, worker in enumerate(workers)],
        "previous": [described(worker, worker.rank) for worker in before],
        "reason": decision.reason,
        "hosts": dict(decision.why),
        "failures": [
            {"name": each.name, "rank": each.rank, "code": each.code, "what": each.what}
            for each in state.failures
        ],
        "culprit": state.failures[0].name if state.failures else None,
        "commit": max(worker.commit for worker in workers),
        "source": decision.source,
        "sync": decision.sync,
        # Seconds from the first end or return of a rank to the last return, and to the decision
        "detect": round(last - min([*asked, *failed], default=last), 4),
        "decide": round(now - last, 4),
    }
