"""A job whose ranks come and go: feeds what happens into the pure part and carries its decisions
out."""

from __future__ import annotations

import json
import math
import random
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from horovod._bootstrap.rendezvous.enlistment import Enlisted, Withdrawn, WorldFailed, WorldReady
from horovod._net.frames import Message
from horovod.runner.agent.frames import Frame, Kind
from horovod.runner.elastic import changes
from horovod.runner.elastic.agents import ElasticAgents
from horovod.runner.elastic.discovery import Complaints, Polling
from horovod.runner.elastic.events import Events
from horovod.runner.elastic.generation import assignment, record, sentence, waiting
from horovod.runner.elastic.membership import Decision, Stop, carried_out, membership
from horovod.runner.elastic.notices import Notices, notices_purpose
from horovod.runner.elastic.output import WorkerOutput
from horovod.runner.elastic.places import places
from horovod.runner.elastic.plan import ElasticPlan
from horovod.runner.elastic.rendezvous import ElasticRendezvous
from horovod.runner.elastic.state import LIVING, PRESENT, Phase, State, Worker
from horovod.runner.launcher import failure
from horovod.runner.launcher.agent_process import AgentProcess
from horovod.runner.launcher.supervision import KILL_AFTER, Watch
from horovod.runner.plan.hosts import HostInfo

_RETRY = 0.05  # seconds until a worker that has not read its notices gets the rest
_ASK_AGAIN = 5.0  # seconds until those that let the job wait are asked again whether they live


class ElasticJob(ElasticAgents):
    """One elastic job."""

    def __init__(self, plan: ElasticPlan, rendezvous: ElasticRendezvous, watch: Watch) -> None:
        super().__init__(plan, rendezvous, watch)
        self._output = WorkerOutput(self._console, plan.output_directory, plan.timestamps)
        self._events = Events(plan.events_file)
        self._state = State(plan.limits, time.monotonic())
        self._changed = True  # something has happened since the last decision
        self._look_again = math.inf
        self._arrived: deque[Any] = deque()  # from the rendezvous server's thread
        self._polling = None if plan.script is None else Polling(plan.script, plan.discovery_seconds)
        self._complaints = Complaints()
        self._discovered = False
        self._notices = Notices(self._signals.wake)
        self._sequence = 0  # of notices
        self._deadlines: dict[str, float] = {}  # of hosts that go away
        self._next_worker = 1
        self._pids: dict[int, int] = {}
        self._ranks: dict[int, int] = {}  # by worker; expected ones at first
        self._results: dict[int, bytearray] = {}  # by worker
        self._outcome: Stop | None = None
        self._short = False  # of slots, and that has been said
        self._told_to_wait = -1  # the generation whose waiting has been mentioned
        self._world_at = 0.0  # when the present world was assigned
        self.reasons: dict[int, str] = {}  # why there was each generation
        rendezvous.on_elastic(self._hear)

    @property
    def results(self) -> dict[int, bytearray]:
        """What workers that ran a function wrote, by their last ranks."""
        members = self._state.members or tuple(self._ranks)
        return {self._ranks[number]: self._results[number] for number in members if number in self._results}

    # -- what happens --

    def _begin(self) -> None:
        if self._plan.hosts is not None:
            self._take_hosts(self._plan.hosts)

    def _hear(self, event: Any) -> None:
        """In the server's thread."""
        self._arrived.append(event)
        self._signals.wake()

    def _apply(self, change: Callable[..., State], *args: Any, **rest: Any) -> None:
        before = self._state
        self._state = change(time.monotonic(), before, *args, **rest)
        self._changed = True
        for name, host in self._state.hosts.items():
            old = before.hosts.get(name)
            if old is not None and host.not_before > max(old.not_before, time.monotonic()):
                self._blacklisted(name)

    def _blacklisted(self, name: str) -> None:
        host = self._state.hosts[name]
        self._info(f"blacklist failing host: {name}")
        again = "" if math.isinf(host.not_before) else f" for {host.not_before - time.monotonic():.1f} s"
        self._say("stderr", f"{name} is not used any more{again}: {host.why}")

    def _hosts_known(self, hosts: list[HostInfo]) -> None:
        self._discovered = True
        self._apply(changes.discovered, [(host.hostname, host.slots) for host in hosts])

    def _on_discovery(self, found: list[HostInfo] | RuntimeError) -> None:
        if not isinstance(found, RuntimeError):
            self._complaints.worked()
            self._discovered = True  # also if looking up the names takes a while
            self._take_hosts(found)
        elif not self._discovered:
            self._conclude(Stop(1, str(found)))
        elif self._complaints.failed(time.monotonic()):
            self._say("stderr", f"{found}; the last answer counts")

    def _on_frame(self, agent: AgentProcess, frame: Frame) -> None:
        number = frame.rank
        if frame.kind is Kind.STDOUT:
            self._output.feed(number, "stdout", frame.payload)
        elif frame.kind is Kind.STDERR:
            self._output.feed(number, "stderr", frame.payload)
        elif frame.kind is Kind.STARTED:
            self._pids[number] = int(frame.payload)
            self._verbose(f"worker {number} on {agent.host} is process {frame.payload.decode()}")
        elif frame.kind is Kind.REFUSED:
            given, _, reason = frame.payload.decode().partition(" ")
            self._on_exit(number, int(given), f"could not be started: {reason}")
        elif frame.kind is Kind.EXIT:
            code, worker = int(frame.payload), self._state.workers.get(number)
            ours = self._stopping or (worker is not None and worker.phase is Phase.CONDEMNED)
            self._on_exit(number, code, failure.describe(code, ours))
        elif frame.kind is Kind.RESULT:
            self._results.setdefault(number, bytearray()).extend(frame.payload)
        elif frame.kind is Kind.TIMELINE:
            self._keep_recorded(agent, frame.payload)
        elif frame.kind is Kind.LISTENING:
            self._on_listening(agent, json.loads(frame.payload))
        elif frame.kind is Kind.LEAVING:
            self._on_leaving(agent, json.loads(frame.payload))
        elif frame.kind is Kind.DONE:
            self._on_done(agent, frame)

    def _on_leaving(self, agent: AgentProcess, data: Message) -> None:
        seconds = float(data["seconds"])
        self._deadlines[agent.host] = time.monotonic() + seconds
        self._say("stderr", f"{agent.host} goes away within {seconds:g} s ({data['why']})")
        self._apply(changes.agent_leaving, agent.host, str(data["why"]))

    def _on_exit(self, number: int, code: int, what: str) -> None:
        self._output.finish(number)
        self._server.worker_ended(number, what)
        self._server.forget(notices_purpose(number))
        self._notices.drop(number)
        worker = self._state.workers.get(number)
        if worker is None:
            return
        self._verbose(f"{worker.name} {what}")
        rank, pid = self._ranks[number], self._pids.get(number)
        self._log.add("rank_exit", rank=rank, host=worker.host, pid=pid, code=code, what=what)
        if self._stopping or self._signalled is not None:
            self._apply(changes.ended, number, "the job is over")
        elif worker.phase in LIVING:
            self._info(f"record state: {worker.name} = {'FAILURE' if code else 'SUCCESS'}")
            if code:
                self._say("stdout", f"rank {rank} on {worker.host} ({worker.name}) {what}")
        self._apply(changes.exited, number, code, what, random.random())
        # The last words of one that failed are for the end of the job.
        if number not in self._state.workers and all(each.worker != number for each in self._state.failures):
            self._forget(number)

    def _forget(self, number: int) -> None:
        self._output.forget(number)
        self._pids.pop(number, None)

    def _on_event(self, event: Any) -> None:
        if isinstance(event, Enlisted):
            worker = self._state.workers.get(event.worker)
            if worker is not None and worker.phase in LIVING:
                self._info(f"record state: {worker.name} = READY")
            self._apply(
                changes.enlisted,
                event.worker,
                generation=event.generation,
                commit=event.commit,
                rolled_back=event.rolled_back,
                culprit=event.culprit,
                silent=event.silent,
                why=event.why,
                jitter=random.random(),
            )
        elif isinstance(event, Withdrawn):
            self._apply(changes.withdrawn, event.worker, event.text)
        elif isinstance(event, WorldFailed):
            self._write("world_failed", generation=event.generation, text=event.text)
            self._apply(
                changes.world_failed,
                event.generation,
                event.text,
                event.workers,
                event.pair,
                random.random(),
            )
        elif isinstance(event, WorldReady) and event.generation == self._state.generation:
            self._info(f"all {len(self._state.members)} workers recorded")
            seconds = round(time.monotonic() - self._world_at, 4)
            self._write("ready", generation=event.generation, connect=seconds)

    def _on_message(self, number: int, message: Message) -> None:
        """What a worker says over its connection for notices."""
        kind = message.get("type")
        if kind == "commit":
            self._state = changes.committed(time.monotonic(), self._state, number, int(message["commit"]))
        elif kind == "pong":
            self._state = changes.heard(time.monotonic(), self._state, number)
        elif kind == "leaving":
            worker = self._state.workers.get(number)
            if worker is not None and worker.phase in LIVING and not self._state.hosts[worker.host].left:
                seconds = float(message["seconds"])
                self._deadlines[worker.host] = time.monotonic() + seconds
                self._say("stderr", f"{worker.host} goes away within {seconds:g} s ({worker.name} says so)")
                self._apply(changes.agent_leaving, worker.host, f"{worker.name} was told to end")
        elif kind == "timing":
            self._write(
                "timing",
                generation=int(message["generation"]),
                worker=number,
                rank=self._ranks.get(number),
                stage=str(message["stage"]),
                seconds=round(float(message["seconds"]), 4),
            )

    # -- agents --

    def _agent_ready(self, host: str, boot_id: str) -> None:
        self._apply(changes.agent_ready, host, boot_id)

    def _agent_lost(self, host: str, why: str, asked: bool) -> None:
        for worker in self._state.workers.values():
            if worker.host == host and worker.phase in PRESENT:
                self._server.worker_ended(worker.id, f"{worker.name} was lost with its host")
                self._notices.drop(worker.id)
                self._verbose(f"{worker.name} was lost with its host")
        if asked:
            self._apply(changes.agent_ended, host)
        else:
            if why:  # none: it was still being connected to when the job ended
                self._say("stderr", f"host {host}: {why}")
            if not self._stopping:
                members = [self._state.workers[number] for number in self._state.members]
                ranks = [each.rank for each in members if each.host == host and each.phase in PRESENT]
                self._log.add("host_lost", host=host, ranks=ranks, reason=why)
            self._apply(changes.agent_lost, host, why, random.random())

    # -- the loop --

    def _further_descriptors(self) -> dict[int, Callable[[], None]]:
        found: dict[int, Callable[[], None]] = {
            fd: partial(self._read_notices, number) for fd, number in self._notices.descriptors().items()
        }
        if self._polling is not None:
            for fd in self._polling.descriptors:
                found[fd] = lambda: None  # looked at in every turn
        return found

    def _read_notices(self, number: int) -> None:
        for message in self._notices.on_readable(number):
            self._on_message(number, message)

    def _next_due(self) -> float | None:
        times = [super()._next_due()]
        if self._notices.blocked():
            times.append(time.monotonic() + _RETRY)
        if not self._stopping:
            times += [self._look_again, self._agents_due()]
            times.append(None if self._polling is None else self._polling.due)
            if self._changed and self._signalled is None:
                times.append(0.0)
        return min((at for at in times if at is not None and at < math.inf), default=None)

    def _check_deadlines(self, now: float) -> None:
        super()._check_deadlines(now)
        self._notices.flush()
        while self._arrived:
            self._on_event(self._arrived.popleft())
        self._look_after_agents(now)
        if self._stopping:
            return
        if self._polling is not None:
            found = self._polling.turn(now)
            if found is not None:
                self._on_discovery(found)
        if self._signalled is not None:
            if not any(worker.phase in PRESENT for worker in self._state.workers.values()):
                self._stop(0.0)
        elif not self._stopping and (self._changed or now >= self._look_again):
            self._decide()

    def _decide(self) -> None:
        """Until there is nothing to do."""
        while not self._stopping:
            now = time.monotonic()
            self._state = changes.tick(now, self._state)
            decision = membership(now, self._state)
            if (decision.condemn or decision.stop) and self._behind(now):
                self._changed, self._look_again = False, now + 0.1  # perhaps they have ended
                return
            if decision.stop is not None:
                self._conclude(decision.stop)
                return
            self._mention_shortage()
            before = self._state
            started = self._carry_out(now, decision)
            self._state = carried_out(now, before, decision, started, random.random())
            if decision.condemn:
                for number, _ in decision.condemn:
                    self._blame_for(before.workers[number])
            if self._state == before:
                self._changed = False
                self._look_again = min(decision.look_again, self._mention_waiting(now, decision))
                return

    def _mention_shortage(self) -> None:
        short = self._state.short_since is not None
        if short and not self._short:
            limits = self._plan.limits
            self._info(
                f"wait for available slots: {limits.least if self._state.generation else limits.start}"
            )
        self._short = short

    def _blame_for(self, worker: Worker) -> None:
        if time.monotonic() < self._state.hosts[worker.host].not_before:
            self._blacklisted(worker.host)

    def _mention_waiting(self, now: float, decision: Decision) -> float:
        """Says once what is waited for; returns when to."""
        state = self._state
        due, text = waiting(state, decision)
        if now < due:
            return due
        if self._told_to_wait != state.generation:
            self._told_to_wait = state.generation
            self._say("stderr", text)
        if changes.bereft_since(state) == math.inf:
            return math.inf
        # Are those who have not noticed that a rank has ended busy, or stopped?
        self._notices.broadcast({"type": "ping"})
        return now + _ASK_AGAIN

    # -- decisions --

    def _carry_out(self, now: float, decision: Decision) -> dict[tuple[str, int], int]:
        for number, text in decision.condemn:
            worker = self._state.workers[number]
            self._say("stderr", f"{worker.name} is killed: {text}")
            self._server.worker_ended(number, text)
            self._notices.send(number, {"type": "ending"})
            self._send(worker.host, Kind.END, "0", number)
        for number, text in decision.end:
            self._verbose(f"{self._state.workers[number].name} is ended: {text}")
            self._server.refuse(number, text)
            self._notices.send(number, {"type": "ending"})  # this SIGTERM is no preemption
            self._send(self._state.workers[number].host, Kind.END, str(KILL_AFTER), number)
        for number, text in decision.dismiss:
            self._verbose(f"{self._state.workers[number].name} is removed: {text}")
            self._server.refuse(number, text)
        for host in decision.release:
            self._release(host)
        for host in decision.agents:
            self._connect(host)
        started = self._start_workers(now, decision)
        if decision.notify:
            self._sequence += 1
            deadline = min((at for at in self._deadlines.values() if at > now), default=math.inf) - now
            self._write(
                "notice", sequence=self._sequence, result=decision.notify.name, why=dict(decision.why)
            )
            self._notices.broadcast(
                {
                    "type": "hosts_updated",
                    "sequence": self._sequence,
                    "result": int(decision.notify),
                    "deadline": None if math.isinf(deadline) else deadline,
                }
            )
        if decision.world is not None:
            self._form(now, decision, decision.world, set(started.values()))
        return started

    def _start_workers(self, now: float, decision: Decision) -> dict[tuple[str, int], int]:
        if not decision.start:
            return {}
        slots = changes.eligible(now, self._state)[: self._plan.limits.most]
        numbers = dict(zip(slots, places(slots), strict=True))
        started: dict[tuple[str, int], int] = {}
        frames: dict[str, list[dict[str, Any]]] = {}
        for slot in decision.start:
            number, place = self._next_worker, numbers[slot]
            self._next_worker += 1
            started[slot] = number
            self._ranks[number] = place.rank
            self._output.add(number, place.rank)
            self._server.expect(number)
            self._server.accept(notices_purpose(number), partial(self._notices.add, number))
            env = {
                **place.environment(),
                "HOROVOD_ELASTIC": "1",
                "HOROVOD_START_RANK": str(place.rank),
                "_HOROVOD_WORKER": str(number),
            }
            self._info(f"start worker process: {slot[0]}[{slot[1]}]")
            frames.setdefault(slot[0], []).append({"rank": number, "env": env})
        for host, workers in frames.items():
            self._send(host, Kind.START, json.dumps(workers))
        return started

    def _form(self, now: float, decision: Decision, world: tuple[int, ...], started: set[int]) -> None:
        state = self._state
        generation = state.generation + 1
        self.reasons[generation] = decision.reason
        workers = [state.workers[number] for number in world]
        numbers = places([(worker.host, worker.slot) for worker in workers])
        several = any(self._is_remote(worker.host) for worker in workers)
        if state.generation:
            self._info(f"reset workers: {len(world)}")
        assignments: dict[int, Message] = {}
        for worker, place in zip(workers, numbers, strict=True):
            addresses = self._addresses(worker.host) if several else []
            assignments[worker.id] = assignment(decision, generation, place, addresses, self._sequence)
            self._output.renumber(worker.id, place.rank)
            self._ranks[worker.id] = place.rank
        self._server.assign(assignments)
        self._world_at = now
        self._say("stderr", sentence(decision, generation, workers, len(state.members)))
        self._write("generation", **record(now, state, decision, generation, workers, self._pids))
        if state.generation:
            self._log.add("reset", generation=generation, size=len(world), reason=decision.reason)
        for rank, worker in enumerate(workers):
            pid = self._pids.get(worker.id)
            self._log.add("rank_started", rank=rank, host=worker.host, pid=pid)
        present = {number for number, worker in state.workers.items() if worker.phase in PRESENT}
        # Those that this decision has started are not in the state yet.
        for number in self._output.workers() - present - started:
            self._forget(number)

    # -- the end --

    def _conclude(self, outcome: Stop) -> None:
        """The job is over; what is left of it is ended."""
        self._outcome = outcome
        if outcome.code == 0:
            count = len(self._state.finished)
            self._info(f"success count == {count} -> stop running")
        elif self._state.failures:
            self._info(f"failure count == {len(self._state.failures)} -> stop running")
        self._write("end", code=outcome.code, text=outcome.text)
        self._stop(KILL_AFTER)

    def _stop(self, kill_after: float) -> None:
        self._notices.broadcast({"type": "ending"})
        if self._polling is not None:
            self._polling.close()
            self._polling = None
        super()._stop(kill_after)

    def _over(self) -> bool:
        return self._stopping and all(agent.closed for agent in self._agents)

    def _finish(self) -> None:
        self._notices.close()
        self._output.close()
        self._events.close()
        if self._signalled is not None or self._outcome is None:
            return
        if self._outcome.text:
            self._say("stderr", self._outcome.text)
        failures = self._state.failures
        if self._outcome.failure is not None and failures:
            first = failures[
                failure.cause([(each.code, self._output.tail(each.worker)) for each in failures])
            ]
            host = first.name.rpartition("[")[0]
            tail = self._output.tail(first.worker)
            self._log.add("failure", rank=first.rank, host=host, code=first.code, reason=first.what)
            text = failure.report(first.rank, host, first.what, first.code, tail, first.name)
            self._console.put("stderr", text.encode(errors="backslashreplace"))
        elif self._outcome.code:
            self._log.add("failure", reason=self._outcome.text)

    def _exit_code(self) -> int:
        if self._signalled is not None:
            return 128 + self._signalled
        return 1 if self._outcome is None else self._outcome.code

    # -- words --

    def _info(self, text: str) -> None:
        if self._plan.talkative:
            self._say("stderr", text)

    def _write(self, event: str, **data: Any) -> None:
        problem = self._events.write(event, **data)
        if problem is not None:
            self._say("stderr", problem)
