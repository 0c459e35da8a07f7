"""Who is in the next world of an elastic job, and what has to be done about it: one pure function.

``membership(now, state)`` looks at everything that is known and says what to do; carried_out() is
the state after that was done. Nothing here waits, and every wait of others has an end: a decision
has a time at which to look again, or there is a world in which all members are active.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from horovod._bootstrap.host_update import HostUpdateResult
from horovod.runner.elastic import changes
from horovod.runner.elastic.constants import RESET_LIMIT_EXCEEDED_MESSAGE, SLOTS_TIMEOUT_MESSAGE
from horovod.runner.elastic.state import (
    LIVING,
    PRESENT,
    WAITING,
    Agent,
    Failure,
    Host,
    Phase,
    State,
    Worker,
)

# After a newcomer is ready, to wait for others that are still starting: half as long as these have taken so
# far, within these limits.
BATCH_SECONDS = (1.0, 10.0)
LEAVE_SECONDS = 30.0  # for a worker that was told that it is removed
FUTILE_RESETS = 3  # in a row that change nobody and see no commit: the error is the program's own

Slot = tuple[str, int]


@dataclass(frozen=True)
class Stop:
    """The job is over."""

    code: int
    text: str  # empty: there is nothing to say
    failure: Failure | None = None  # to be reported as the cause


@dataclass(frozen=True)
class Decision:
    """What to do now. Workers are given by their numbers, hosts by their names."""

    why: Mapping[str, str]  # a sentence for every host
    look_again: float  # at the latest
    stop: Stop | None = None
    world: tuple[int, ...] | None = None  # by rank
    source: int = 0  # the rank whose state counts
    sync: bool = True
    futile: int = 0
    reason: str = ""  # of the world
    agents: tuple[str, ...] = ()  # hosts to connect to
    release: tuple[str, ...] = ()  # hosts whose agents have nothing to do any more
    start: tuple[Slot, ...] = ()
    condemn: tuple[tuple[int, str], ...] = ()  # to be killed: they do not react
    end: tuple[tuple[int, str], ...] = ()  # to be ended: their host is not used any more
    dismiss: tuple[tuple[int, str], ...] = ()  # to be told that they are removed
    notify: HostUpdateResult = HostUpdateResult.no_update
    announced: tuple[Slot, ...] = ()  # what the notice is about
    waiting: str = ""  # what the waiting workers wait for
    load: bool = False  # the source takes the state from disk


def membership(now: float, state: State) -> Decision:
    """What to do now."""
    why = {host.name: _sentence(now, state, host) for host in state.hosts.values()}
    stop = _over(now, state)
    if stop is not None:
        return Decision(why, now, stop=stop)
    condemn = tuple((worker.id, worker.why or "did not react") for worker in _silent(now, state))
    if condemn:  # a decision for itself: it changes what is left
        return Decision(why, now, condemn=condemn)
    if state.finished and state.generation:
        # The others are about to end, too, and those that were removed.
        return Decision(why, min(_leave_until(now, state), default=math.inf))
    slots = changes.eligible(now, state)
    end, dismiss = _unwanted(now, state, slots)
    gone = {number for number, _ in (*end, *dismiss)}
    world, missing = _world(state, slots, gone)
    notify, announced, batch = _notice(now, state, slots, gone)
    agents, release, start = _staffing(now, state, slots)
    decision = Decision(
        why,
        min(batch, _next_look(now, state)),
        agents=agents,
        release=release,
        start=start,
        end=tuple(end),
        dismiss=tuple(dismiss),
        notify=notify,
        announced=announced,
        waiting=missing,
    )
    if world is None:
        return decision
    return _with_world(state, decision, world)


def carried_out(
    now: float, state: State, decision: Decision, started: Mapping[Slot, int], jitter: float
) -> State:
    """The state after a decision; ``started`` are the numbers of the workers that were started."""
    for number, text in decision.condemn:
        if state.workers[number].phase in LIVING:
            state = changes.condemned(now, state, number, text, jitter)
    for number, text in decision.end:
        state = changes.ended(now, state, number, text)
    for number, text in decision.dismiss:
        state = changes.dismissed(now, state, number, text)
    for host in decision.agents:
        state = changes.agent_starting(now, state, host)
    for host in decision.release:
        state = changes.agent_stopping(now, state, host)
    for (host, slot), number in started.items():
        state = changes.spawned(now, state, number, host, slot)
    if decision.notify:
        state = changes.notified(now, state, decision.announced)
    if decision.world is not None:
        state = changes.formed(now, state, decision.world, decision.futile)
    return changes.tick(now, state)


# -- the end --


def _over(now: float, state: State) -> Stop | None:
    members = [state.workers[number] for number in state.members]
    everyone = members or [worker for worker in state.workers.values()]
    waiting = [worker for worker in everyone if worker.phase in WAITING]
    running = [worker for worker in everyone if worker.phase in LIVING]
    first = state.failures[0] if state.failures else None
    if state.finished:
        if waiting:
            return Stop(1, _left_alone(state, running), first)
        if running or _leave_until(now, state):
            return None
        if not state.generation and _unstaffed(now, state):
            return _out_of_time(now, state, first)
        # One that failed before it was in the world does not spoil the end of the others.
        counted = [each for each in state.failures if not members or each.worker in state.members]
        return Stop(_shell_code(counted[0].code), "", counted[0]) if counted else Stop(0, "")
    alone = _only_on_disk(state)  # then new hosts may still come
    fresh = state.generation == 0 and changes.eligible(now, state)
    if first is not None and not running and not fresh and not alone:
        return Stop(_shell_code(first.code), "", first)
    if members and not (state.limits.durable and state.newest >= 0):
        hosts = {worker.host for worker in members}
        if first is not None and all(now < state.hosts[name].not_before for name in hosts):
            text = f"every host of the job has failed: {_names(sorted(hosts))}"
            return Stop(_shell_code(first.code), text, first)
        if not running:
            return Stop(1, "no rank of the last world is left, and with it no state", None)
        slots = set(changes.eligible(now, state))
        if waiting and not any((worker.host, worker.slot) in slots for worker in running):
            return Stop(
                1,
                "no host of the last world remains, so nobody has the state of the training: new hosts "
                "must overlap with old ones",
                first,
            )
    limit = state.limits.reset_limit
    # Not when the next world could be formed: nobody has to wait for slots in vain.
    if limit is not None and state.generation > limit and not _absent(state):
        return Stop(1, RESET_LIMIT_EXCEEDED_MESSAGE.format(limit), first)
    if members and state.futile >= FUTILE_RESETS:
        return Stop(
            1,
            f"{FUTILE_RESETS} resets in a row changed no rank and saw no commit, so the error is the "
            f"program's own: {state.accusation or 'see the output of the ranks'}",
            first,
        )
    if _hopeless(now, state):
        lost = [f"{host.name}: {host.why}" for host in state.hosts.values() if not changes.usable(now, host)]
        text = f"the job could not be started: {_names(lost)}"
        return Stop(1 if first is None else _shell_code(first.code), text, first)
    return _out_of_time(now, state, first)


def _leave_until(now: float, state: State) -> list[float]:
    """How long those that were told that they are removed may still take, which have not ended."""
    leaving = [worker.since for worker in state.workers.values() if worker.phase is Phase.LEAVING]
    return [since + LEAVE_SECONDS for since in leaving if now < since + LEAVE_SECONDS]


def _only_on_disk(state: State) -> bool:
    """Whether nobody who has the state of the training lives, but it was kept."""
    members = [state.workers[number] for number in state.members]
    return (
        state.limits.durable and state.newest >= 0 and not any(worker.phase in LIVING for worker in members)
    )


def _hopeless(now: float, state: State) -> bool:
    """Before the first world: too few slots are left, and no host can come or come back."""
    if state.generation or not state.limits.fixed or not state.hosts:
        return False
    returning = [host.slots for host in state.hosts.values() if now < host.not_before < math.inf]
    return len(changes.eligible(now, state)) + sum(returning) < state.limits.start


def _unstaffed(now: float, state: State) -> bool:
    """Whether there is a slot that has never had a worker."""
    taken = {(worker.host, worker.slot) for worker in state.workers.values()}
    return any(slot not in taken for slot in changes.eligible(now, state)[: state.limits.most])


def _out_of_time(now: float, state: State, first: Failure | None) -> Stop | None:
    deadline = _patience_ends(state)
    if now < deadline:
        return None
    limits = state.limits
    need = limits.least if state.generation else limits.start
    have = len(changes.eligible(now, state))
    text = (
        f"{SLOTS_TIMEOUT_MESSAGE}: {need} are needed, {min(have, limits.most or have)} are there after "
        f"{limits.elastic_timeout:g} s; add hosts, lower {'--min-np' if state.generation else '-np'}, or "
        "raise --elastic-timeout"
    )
    return Stop(1, text, first)


def _patience_ends(state: State) -> float:
    """When waiting for a world with enough ranks is over."""
    timeout = state.limits.elastic_timeout
    if state.generation == 0:
        return math.inf if state.short_since is None else state.short_since + timeout
    waiting = [worker.since for worker in state.workers.values() if worker.phase is Phase.ENLISTED]
    if _only_on_disk(state):
        waiting.append(max(state.workers[number].since for number in state.members))
    # A little later than those who have not come are given up: perhaps enough are there.
    return min(waiting, default=math.inf) + timeout + changes.SILENT_GRACE


def _left_alone(state: State, running: Sequence[Worker]) -> str:
    done = sorted(state.workers[number].rank for number in state.finished if number in state.workers)
    rest = sorted(worker.rank for worker in running)
    return (
        f"rank{'s' if len(done) > 1 else ''} {','.join(map(str, done))} finished while "
        f"rank{'s' if len(rest) > 1 else ''} {','.join(map(str, rest))} had not: all ranks must run the same "
        "number of steps"
    )


# -- who --


def _silent(now: float, state: State) -> list[Worker]:
    """Workers that others have given up, or that keep the others waiting for too long."""
    late = -math.inf
    enlisted = [worker.since for worker in state.workers.values() if worker.phase is Phase.ENLISTED]
    if enlisted:
        late = min(enlisted) + state.limits.elastic_timeout
    return [
        worker
        for worker in state.workers.values()
        if (worker.phase in (Phase.ACTIVE, Phase.SPAWNED) and now >= worker.accused)
        or (enlisted and worker.phase in (Phase.ACTIVE, Phase.SPAWNED) and now >= late)
        or now >= changes.unheard_until(state, worker)
    ]


def _unwanted(
    now: float, state: State, slots: Sequence[Slot]
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Workers in slots that may not be used: to be ended, and to be told."""
    end: list[tuple[int, str]] = []
    dismiss: list[tuple[int, str]] = []
    allowed = set(slots)
    for worker in state.workers.values():
        if worker.phase is Phase.LEAVING and now >= worker.since + LEAVE_SECONDS:
            end.append((worker.id, f"{worker.name} was removed, but has not ended"))
        if worker.phase not in LIVING or (worker.host, worker.slot) in allowed:
            continue
        host = state.hosts[worker.host]
        if now < host.not_before and not host.left:
            end.append((worker.id, f"{host.name} is blacklisted: {host.why}"))
        elif worker.phase is Phase.SPAWNED:
            end.append((worker.id, f"{worker.name} is not needed any more"))
        elif worker.phase in WAITING:
            dismiss.append((worker.id, _removal(worker, host)))
    return end, dismiss


def _removal(worker: Worker, host: Host) -> str:
    if host.slots == 0:
        return f"{host.name} is not among the hosts any more"
    if worker.slot >= host.slots:
        return f"{host.name} has only {host.slots} slots now"
    return host.why or f"{host.name} is not used any more"


def _world(state: State, slots: Sequence[Slot], gone: set[int]) -> tuple[list[Worker] | None, str]:
    """The workers of the next world in the order of their ranks, or None and what is missing."""
    limits = state.limits
    ready = {
        (worker.host, worker.slot): worker
        for worker in state.workers.values()
        if worker.phase in WAITING and worker.id not in gone
    }
    chosen = [ready[slot] for slot in slots if slot in ready][: limits.most]
    if state.generation == 0:
        wanted = slots[: limits.most]
        missing = [f"{host}[{slot}]" for host, slot in wanted if (host, slot) not in ready]
        if len(wanted) < limits.start:
            return None, f"{limits.start} slots, of which {len(wanted)} are there"
        return (chosen, "") if not missing else (None, _names(missing))
    absent = _names([f"rank {worker.rank} ({worker.name})" for worker in _absent(state)])
    if not any(worker.phase is Phase.ENLISTED for worker in chosen) and not _only_on_disk(state):
        return None, absent if changes.bereft_since(state) < math.inf else ""
    if absent:
        return None, absent
    if len(chosen) < limits.least:
        return None, f"{limits.least} ranks, of which {len(chosen)} are ready"
    starting = [
        worker.name
        for worker in state.workers.values()
        if worker.phase is Phase.SPAWNED and (worker.host, worker.slot) in slots[: limits.most]
    ]
    if starting and not limits.warm_join:
        return None, _names(starting)
    return chosen, ""


def _absent(state: State) -> list[Worker]:
    """Members of the present world that have not asked for another."""
    members = [state.workers[number] for number in state.members]
    return [worker for worker in members if worker.phase is Phase.ACTIVE]


def _with_world(state: State, decision: Decision, world: list[Worker]) -> Decision:
    numbers = tuple(worker.id for worker in world)
    newest = max(worker.commit for worker in world)
    if state.newest >= 0 > newest and not state.limits.durable:
        text = "nobody who is left has the state of the training"
        return Decision(decision.why, decision.look_again, stop=Stop(1, text, None))
    same = newest >= 0 and all(worker.commit == newest and worker.generation > 0 for worker in world)
    rolled_back = any(worker.rolled_back for worker in world)
    # After an error only: programs may restart a world of their own accord.
    failed = rolled_back or state.unconnected
    repeated = failed and set(numbers) == set(state.members) and newest <= state.formed_with
    gone = {number for number, _ in (*decision.end, *decision.dismiss)}
    surplus = [
        worker
        for worker in state.workers.values()
        if worker.phase is Phase.ENLISTED and worker.id not in numbers and worker.id not in gone
    ]
    leaving = tuple((worker.id, "the job has as many ranks as --max-np allows") for worker in surplus)
    return Decision(
        why=decision.why,
        look_again=decision.look_again,
        world=numbers,
        load=state.newest >= 0 > newest,
        source=next(rank for rank, worker in enumerate(world) if worker.commit == newest),
        sync=not same or rolled_back,
        futile=state.futile + 1 if repeated else 0,
        reason=_reason(state, world),
        agents=decision.agents,
        release=decision.release,
        start=decision.start,
        end=decision.end,
        dismiss=(*decision.dismiss, *leaving),
    )


# -- notices --


def _notice(
    now: float, state: State, slots: Sequence[Slot], gone: set[int]
) -> tuple[HostUpdateResult, tuple[Slot, ...], float]:
    """What the members are to be told, about which slots, and when to look again."""
    nothing = (HostUpdateResult.no_update, (), math.inf)
    members = [state.workers[number] for number in state.members]
    if not members or any(worker.phase is not Phase.ACTIVE for worker in members):
        return nothing  # a change is under way already
    taken = {
        (worker.host, worker.slot): worker
        for worker in state.workers.values()
        if worker.phase in LIVING and worker.id not in gone
    }
    wanted = [slot for slot in slots if slot in taken]
    starting = [taken[slot] for slot in wanted if taken[slot].phase is Phase.SPAWNED]
    again = math.inf
    if state.limits.warm_join:
        newest = max(
            (taken[slot].since for slot in wanted if taken[slot].phase is Phase.STANDBY), default=-math.inf
        )
        if starting and newest > -math.inf and now < (end := newest + _patience_with(starting, newest)):
            # Others will be ready in a moment: one interruption is enough.
            again = end
            wanted = [slot for slot in wanted if taken[slot].phase is Phase.ACTIVE]
        wanted = [slot for slot in wanted if taken[slot].phase is not Phase.SPAWNED]
    target = tuple(wanted[: state.limits.most])
    present = {(worker.host, worker.slot) for worker in members}
    result = HostUpdateResult.no_update
    if present - set(target):
        result |= HostUpdateResult.removed
    if set(target) - present:
        result |= HostUpdateResult.added
    if not result or target == state.announced:
        return HostUpdateResult.no_update, (), again
    return result, target, again


def _patience_with(starting: Sequence[Worker], newest: float) -> float:
    least, most = BATCH_SECONDS
    return min(max(least, (newest - min(worker.since for worker in starting)) / 2), most)


# -- agents and workers --


def _staffing(
    now: float, state: State, slots: Sequence[Slot]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Slot, ...]]:
    """Hosts to connect to, hosts to release, workers to start."""
    wanted = slots[: state.limits.most]
    hosts = dict.fromkeys(name for name, _ in wanted)
    agents = tuple(name for name in hosts if state.hosts[name].agent is Agent.NONE)
    # Nothing is started before there are enough slots, or by a job that is at its end.
    enough = state.generation > 0 or len(slots) >= state.limits.start
    present = [worker for worker in state.workers.values() if worker.phase in PRESENT]
    # A slot is free when the process that had it is gone: it may hold a device. One that has
    # finished is not followed by another.
    taken = {
        (worker.host, worker.slot)
        for worker in state.workers.values()
        if worker.phase in PRESENT or worker.phase is Phase.FINISHED
    }
    start = tuple(
        (name, slot)
        for name, slot in wanted
        if enough and state.hosts[name].agent is Agent.READY and (name, slot) not in taken
    )
    busy = {worker.host for worker in present}
    release = tuple(
        host.name
        for host in state.hosts.values()
        if host.agent is Agent.READY and host.name not in busy and not changes.usable(now, host)
    )
    return agents if enough else (), release, start


# -- words and times --


def _next_look(now: float, state: State) -> float:
    times = [_patience_ends(state)]
    times += [worker.accused for worker in state.workers.values() if worker.phase in LIVING]
    times += [changes.unheard_until(state, worker) for worker in state.workers.values()]
    times += _leave_until(now, state)
    times += [host.not_before for host in state.hosts.values() if host.slots and host.not_before > now]
    enlisted = [worker.since for worker in state.workers.values() if worker.phase is Phase.ENLISTED]
    if enlisted:
        times.append(min(enlisted) + state.limits.elastic_timeout)
    return min((time for time in times if time > now), default=math.inf)


def _sentence(now: float, state: State, host: Host) -> str:
    """Why a host takes part, or does not."""
    if host.left:
        return host.why
    if now < host.not_before:
        until = "" if math.isinf(host.not_before) else f"; again in {host.not_before - now:.1f} s"
        return f"blacklisted: {host.why}{until}"
    if host.slots == 0:
        return "not among the hosts any more"
    slots = f"{host.slots} slot{'' if host.slots == 1 else 's'}"
    if host.agent is not Agent.READY:
        return f"{slots}, {host.agent.value}"
    ranks = sum(
        worker.host == host.name and worker.phase in LIVING and worker.generation > 0
        for worker in state.workers.values()
    )
    return f"{slots}, {ranks} in use"


def _reason(state: State, world: Sequence[Worker]) -> str:
    if state.generation == 0:
        return "the start of the job"
    if state.news:
        return "; ".join(dict.fromkeys(state.news))
    new = [worker.name for worker in world if worker.generation == 0]
    if new:
        return f"{_names(new)} joined"
    return state.accusation or "the ranks asked for a new world"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


def _shell_code(code: int) -> int:
    return 128 - code if code < 0 else code
