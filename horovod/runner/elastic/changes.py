"""What can happen to an elastic job: pure functions from a state and an event to the next state.

Time is an argument. So is chance: ``jitter``, from 0 to 1, is part of the event.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from horovod.runner.elastic.state import LIVING, PRESENT, Agent, Failure, Host, Phase, State, Worker

# Seconds for a worker that others have given up to come by itself
SILENT_GRACE = 0.3  # it was silent before
ENDING_GRACE = 3.0  # it is perhaps just exiting
_NEWS = 8  # sentences kept for the next world's reason


def discovered(now: float, state: State, listed: Sequence[tuple[str, int]]) -> State:
    """The hosts and slots that there are now."""
    found = dict(listed)
    for name, slots in listed:
        host = state.hosts.get(name)
        if host is None:
            state = _put(state, Host(name, slots, state.next_order))
            state = replace(state, next_order=state.next_order + 1)
            if state.generation:
                state = _tell(state, f"{name} has come with {_slots(slots)}")
        elif slots != host.slots:
            state = _resized(state, host, slots)
    for host in list(state.hosts.values()):
        if host.name not in found and (host.slots or host.left):
            state = _put(state, replace(host, slots=0, left=False))
            if host.slots and not host.left:
                state = _tell(state, f"{host.name} is gone")
    return tick(now, state)


def agent_starting(now: float, state: State, name: str) -> State:
    """The launcher connects to a host."""
    return _change_host(state, name, agent=Agent.STARTING)


def agent_ready(now: float, state: State, name: str, boot_id: str = "") -> State:
    """A host can start workers. Another boot id than before is another machine: a clean start."""
    host = state.hosts[name]
    changed = replace(host, agent=Agent.READY, boot_id=boot_id)
    if boot_id and host.boot_id and boot_id != host.boot_id:
        changed = replace(changed, failures=0, blacklisted=0)
    return _put(state, changed)


def agent_leaving(now: float, state: State, name: str, why: str) -> State:
    """A host has got notice that it will be taken away."""
    state = _change_host(state, name, left=True, why=f"it goes away ({why})")
    return tick(now, _tell(state, f"{name} goes away ({why})"))


def agent_stopping(now: float, state: State, name: str) -> State:
    """The launcher has no use for a host any more."""
    return _change_host(state, name, agent=Agent.STOPPING)


def agent_ended(now: float, state: State, name: str) -> State:
    """An agent that was told to stop, or had said that it would, is gone with all its workers."""
    for worker in _of(state, name):
        state = _end(now, state, worker, Phase.FAILED, "it ended with its host")
    return tick(now, _change_host(state, name, agent=Agent.NONE))


def agent_lost(now: float, state: State, name: str, what: str, jitter: float) -> State:
    """An agent, and with it all workers of a host, is gone without having been asked."""
    workers = _of(state, name)
    state = _change_host(state, name, agent=Agent.NONE)
    for worker in workers:
        if worker.phase in LIVING and state.workers[worker.id].phase in LIVING:
            state = _failed(now, state, worker, 1, f"was lost with its host: {what}")
        else:
            state = _end(now, state, worker, Phase.FAILED, what)
    return tick(now, _blame(now, state, name, what, jitter, whole=True))


def spawned(now: float, state: State, number: int, host: str, slot: int) -> State:
    """A worker was started."""
    return _put_worker(state, Worker(number, host, slot, since=now))


def enlisted(
    now: float,
    state: State,
    number: int,
    generation: int = 0,
    commit: int = -1,
    rolled_back: bool = False,
    culprit: int | None = None,
    silent: bool = False,
    why: str = "",
    jitter: float = 0.0,
) -> State:
    """A worker asks for a place in the next world, and perhaps says who ended the last one."""
    why = why.rstrip(".")
    worker = state.workers.get(number)
    if worker is None or worker.phase not in LIVING:
        return state
    phase = Phase.ENLISTED if worker.generation else Phase.STANDBY
    state = _put_worker(
        state,
        replace(
            worker,
            phase=phase,
            since=now,
            commit=commit,
            rolled_back=rolled_back,
            accused=math.inf,
            why=why,
        ),
    )
    state = replace(state, newest=max(state.newest, commit), accusation=why or state.accusation)
    if culprit is None or generation != state.generation or not 0 <= culprit < len(state.members):
        return state
    other = state.member(culprit)
    state = replace(state, accusers=state.accusers | {(number, other.id)})
    if other.phase is Phase.ACTIVE:
        grace = SILENT_GRACE if silent else ENDING_GRACE
        return _put_worker(state, replace(other, accused=min(other.accused, now + grace), why=why))
    if other.phase is Phase.ENLISTED and (other.id, number) in state.accusers and other.host != worker.host:
        # Both live, and neither hears the other.
        return tick(now, _broken_link(now, state, {worker.host, other.host}, jitter))
    return state


def withdrawn(now: float, state: State, number: int, text: str) -> State:
    """The connection of a waiting worker is gone; it comes again, or it is dead."""
    worker = state.workers.get(number)
    if worker is None or worker.phase not in (Phase.STANDBY, Phase.ENLISTED):
        return state
    phase = Phase.ACTIVE if worker.phase is Phase.ENLISTED else Phase.SPAWNED
    return _put_worker(state, replace(worker, phase=phase, since=now, accused=now + ENDING_GRACE, why=text))


def world_failed(
    now: float,
    state: State,
    generation: int,
    text: str,
    workers: Iterable[int],
    pair: Sequence[int] = (),
    jitter: float = 0.0,
) -> State:
    """The ranks of a world could not connect: those at fault come again, or are dead.

    Of a ``pair`` that does not reach each other the younger host has to go.
    """
    if generation != state.generation:
        return state
    state = replace(state, unconnected=True)
    hosts = {state.workers[number].host for number in pair if number in state.workers}
    if len(hosts) == 2:
        return tick(now, _broken_link(now, state, hosts, jitter))
    for number in workers:
        worker = state.workers.get(number)
        if worker is not None and worker.phase is Phase.ACTIVE:
            accused = min(worker.accused, now + ENDING_GRACE)
            state = _put_worker(state, replace(worker, accused=accused, why=text))
    return state


def committed(now: float, state: State, number: int, commit: int) -> State:
    """A worker has told how far it is."""
    worker = state.workers.get(number)
    if worker is None or worker.phase is not Phase.ACTIVE:
        return state
    state = _put_worker(state, replace(worker, commit=max(worker.commit, commit)))
    return replace(state, newest=max(state.newest, commit))


def heard(now: float, state: State, number: int) -> State:
    """A worker lives."""
    worker = state.workers.get(number)
    return state if worker is None else _put_worker(state, replace(worker, heard=now))


def exited(now: float, state: State, number: int, code: int, what: str, jitter: float) -> State:
    """A worker's process has ended."""
    worker = state.workers.get(number)
    if worker is None or worker.phase not in PRESENT:
        return state
    if worker.phase not in LIVING:  # our own doing
        return tick(now, _end(now, state, worker, Phase.FAILED, what))
    first = state.generation == 0
    if code == 0 and (first or number in state.members):
        state = _put_worker(state, replace(worker, phase=Phase.FINISHED, since=now))
        return tick(now, replace(state, finished=(*state.finished, number)))
    text = f"{worker.name} {what}" if code else f"{worker.name} exited with code 0 before it joined the job"
    state = _failed(now, state, worker, code or 1, what)
    return tick(now, _blame(now, state, worker.host, text, jitter))


def condemned(now: float, state: State, number: int, text: str, jitter: float) -> State:
    """The launcher ends a worker that does not react: a failure of its host."""
    worker = state.workers[number]
    host = worker.host
    state = _failed(now, state, worker, -9, f"was killed: {text}")
    state = _put_worker(state, replace(worker, phase=Phase.CONDEMNED, since=now, why=text))
    return tick(now, _blame(now, state, host, f"{worker.name}: {text}", jitter))


def ended(now: float, state: State, number: int, text: str) -> State:
    """The launcher ends a worker that is not wanted any more."""
    worker = state.workers[number]
    return _put_worker(state, replace(worker, phase=Phase.CONDEMNED, since=now, why=text))


def dismissed(now: float, state: State, number: int, text: str) -> State:
    """A worker has been told that it is removed; it exits by itself."""
    worker = state.workers[number]
    return _put_worker(state, replace(worker, phase=Phase.LEAVING, since=now, why=text))


def notified(now: float, state: State, announced: tuple[tuple[str, int], ...]) -> State:
    """All workers have been told about the hosts."""
    return replace(state, announced=announced)


def formed(now: float, state: State, world: Sequence[int], futile: int) -> State:
    """A world was assigned; ``world`` are its workers by rank."""
    generation = state.generation + 1
    kept = {number: each for number, each in state.workers.items() if each.phase in PRESENT}
    for rank, number in enumerate(world):
        kept[number] = replace(
            kept[number],
            phase=Phase.ACTIVE,
            generation=generation,
            rank=rank,
            since=now,
            accused=math.inf,
            why="",
        )
    return tick(
        now,
        replace(
            state,
            workers=kept,
            generation=generation,
            members=tuple(world),
            formed_with=state.newest,
            futile=futile,
            unconnected=False,
            finished=(),
            failures=(),
            news=(),
            accusers=frozenset(),
            announced=tuple((kept[number].host, kept[number].slot) for number in world),
        ),
    )


def tick(now: float, state: State) -> State:
    """Time has passed: what depends on nothing else."""
    cooldown = state.limits.cooldown
    for host in list(state.hosts.values()):
        if 0 < host.not_before <= now:
            # As one that was away: behind those that were there, so that rank 0 stays where it is.
            host = replace(host, not_before=0.0, failed_at=host.not_before, order=state.next_order)
            state = replace(_put(state, host), next_order=state.next_order + 1)
        if (
            cooldown is not None
            and host.blacklisted
            and now >= max(host.failed_at, host.not_before) + cooldown[1]
        ):
            state = _put(state, replace(host, blacklisted=host.blacklisted // 2, failed_at=now))
    short = len(eligible(now, state)) < (state.limits.least if state.generation else state.limits.start)
    if not short:
        return state if state.short_since is None else replace(state, short_since=None)
    return state if state.short_since is not None else replace(state, short_since=now)


def usable(now: float, host: Host) -> bool:
    """Whether ranks may run there."""
    return host.slots > 0 and not host.left and now >= host.not_before and host.agent is not Agent.STOPPING


def bereft_since(state: State) -> float:
    """Since when a member has ended of which no other one has heard, as nobody asks for a new
    world; infinity: none has.
    """
    if state.finished or any(worker.phase is Phase.ENLISTED for worker in state.workers.values()):
        return math.inf
    members = [state.workers[number] for number in state.members]
    return min((worker.since for worker in members if worker.phase is Phase.FAILED), default=math.inf)


def unheard_until(state: State, worker: Worker) -> float:
    """When a member is given up that is left of a world, but neither notices nor answers: it is
    stopped. One that is only busy answers, and may take its time.
    """
    if worker.phase is not Phase.ACTIVE:
        return math.inf
    return max(bereft_since(state), worker.heard) + state.limits.elastic_timeout


def eligible(now: float, state: State) -> list[tuple[str, int]]:
    """All slots in which a rank may run, in the order of ranks."""
    hosts = sorted(state.hosts.values(), key=lambda host: host.order)
    return [(host.name, slot) for host in hosts if usable(now, host) for slot in range(host.slots)]


def _resized(state: State, host: Host, slots: int) -> State:
    if host.slots == 0:
        # A host that returns is new, unless it was missed only for a moment.
        order = host.order
        if not any(worker.phase in LIVING for worker in _of(state, host.name)):
            order = state.next_order
            state = replace(state, next_order=order + 1)
        state = _put(state, replace(host, slots=slots, order=order, left=False))
        return _tell(state, f"{host.name} has come with {_slots(slots)}")
    state = _put(state, replace(host, slots=slots))
    if slots == 0:
        return _tell(state, f"{host.name} was taken away")
    return _tell(state, f"{host.name} has {_slots(slots)} instead of {host.slots}")


def _broken_link(now: float, state: State, hosts: Iterable[str], jitter: float) -> State:
    """Somebody has to go."""
    older, younger = sorted(hosts, key=lambda name: state.hosts[name].order)
    text = f"{older} and {younger} do not reach each other, and {older} was there first"
    return _blame(now, state, younger, text, jitter, whole=True)


def _blame(now: float, state: State, name: str, text: str, jitter: float, whole: bool = False) -> State:
    host = state.hosts[name]
    state = _tell(state, text)
    if host.left or host.slots == 0 or now < host.not_before:
        return state
    failures = host.failures + 1
    if not whole and failures < state.limits.failures_before_blacklist:
        return _put(state, replace(host, failures=failures, failed_at=now))
    times = host.blacklisted + 1
    until = math.inf
    if state.limits.cooldown is not None:
        least, most = state.limits.cooldown
        until = now + min(float(most), least * 2.0 ** min(times, 20) + jitter * least)
    return _put(
        state,
        replace(host, failures=0, blacklisted=times, failed_at=now, not_before=until, why=text),
    )


def _failed(now: float, state: State, worker: Worker, code: int, what: str) -> State:
    failure = Failure(worker.id, worker.name, worker.rank, code, what)
    state = _end(now, state, worker, Phase.FAILED, what)
    return replace(state, failures=(*state.failures, failure))


def _end(now: float, state: State, worker: Worker, phase: Phase, why: str) -> State:
    if worker.id in state.members:  # its end matters until there is another world
        if state.workers[worker.id].phase in (Phase.FINISHED, Phase.FAILED):
            return state
        return _put_worker(state, replace(worker, phase=phase, since=now, why=why))
    return replace(
        state, workers={number: each for number, each in state.workers.items() if number != worker.id}
    )


def _of(state: State, host: str) -> list[Worker]:
    return [worker for worker in state.workers.values() if worker.host == host and worker.phase in PRESENT]


def _put(state: State, host: Host) -> State:
    return replace(state, hosts={**state.hosts, host.name: host})


def _change_host(state: State, name: str, **changes: Any) -> State:
    return _put(state, replace(state.hosts[name], **changes))


def _put_worker(state: State, worker: Worker) -> State:
    return replace(state, workers={**state.workers, worker.id: worker})


def _tell(state: State, text: str) -> State:
    return replace(state, news=(*state.news, text)[-_NEWS:])


def _slots(count: int) -> str:
    return f"{count} slot{'' if count == 1 else 's'}"
