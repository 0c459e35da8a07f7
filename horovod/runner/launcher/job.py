"""Supervision of one job: starts the agents, decides when it is over and how it ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from horovod.runner import ssh
from horovod.runner.agent.frames import Frame, Kind
from horovod.runner.launcher import failure
from horovod.runner.launcher.agent_process import AgentError, AgentProcess, Turns, start_local, start_remote
from horovod.runner.launcher.event_log import EventLog
from horovod.runner.launcher.host_keepalive import HostKeepalives
from horovod.runner.launcher.output import Console, RankOutput
from horovod.runner.launcher.rendezvous import Rendezvous
from horovod.runner.launcher.signals import ENDING, PASSED_ON, STACKS, SignalReceiver
from horovod.runner.launcher.stack_requests import StackRequests
from horovod.runner.launcher.survey_coordinator import SurveyCoordinator
from horovod.runner.plan.job_plan import HostPlan, JobPlan
from horovod.runner.processes import Sweep, become_subreaper, descendants

KILL_AFTER = 5.0  # seconds from SIGTERM to SIGKILL
ORPHANS_KILL_AFTER = 0.5  # the same for what a dead agent has left behind
# After SIGKILL an agent that was told to stop is killed itself
STOP_LIMIT = Sweep.GIVE_UP_AFTER + 5.0
# Seconds in which a signal counts once: from the terminal and from a wrapper script
SAME_SIGNAL = 1.0
_TICK = 0.03
_ENDING = 1.0  # seconds between the end of an agent's pipe and that of its guardian
_AT_A_TIME = 32  # other machines that are being connected to
_ATTEMPTS = 5  # at connecting to one that is too busy to answer
_LAST_WORDS = 2.0  # seconds for the rest of the output of a job that a signal has ended


@dataclass
class _Failure:
    rank: int
    host: str
    code: int
    what: str


@dataclass
class _Deadlines:
    """Points in time at which something happens without an event; None: not planned."""

    start: float | None = None
    stop: float | None = None
    kill_agents: float | None = None

    def next(self) -> float | None:
        return min((at for at in (self.start, self.stop, self.kill_agents) if at is not None), default=None)


class Job:
    """One run of a plan."""

    def __init__(
        self,
        plan: JobPlan,
        rendezvous: Rendezvous,
        console: Console | None = None,
        events: EventLog | None = None,
        stacks: StackRequests | None = None,
    ) -> None:
        self._plan = plan
        self._events = events or EventLog()
        self._stacks = stacks or StackRequests(lambda: False)
        self._events.warn = lambda text: self._say("stderr", text)
        self._rendezvous = rendezvous
        self._console = console or Console()
        self._output = RankOutput(self._console, plan.size, plan.output_directory, plan.timestamps)
        self._agents: list[AgentProcess] = []
        self._turns = Turns(_AT_A_TIME)
        self._signals = SignalReceiver()
        self._keepalives = HostKeepalives(self._signals.wake)
        self._survey: SurveyCoordinator | None = None
        if plan.cluster is not None:
            self._survey = SurveyCoordinator(
                plan,
                plan.cluster,
                rendezvous,
                self._keepalives,
                say=lambda text: self._say("stderr", text),
                send_plan=self._send_plan,
                failed=self._could_not_start,
            )
        self._parent = plan.parent
        self.results: dict[int, bytearray] = {}  # by rank, what workers that run a function wrote
        self.timeline: dict[int, bytearray] = {}  # by rank, what ranks of other machines recorded
        self._running = {worker.rank for host in plan.hosts for worker in host.workers}
        self._deadlines = _Deadlines()
        self._failures: list[_Failure] = []  # in the order of their arrival, without our own doing
        self._trouble: tuple[str, int] | None = None  # of the launcher's own: text and exit code
        self._signalled: int | None = None
        self._signalled_at = 0.0
        self._stopping = False
        self._host_lost = False
        self._unclean = False

    def run(self) -> int:
        """Runs the job to its end and returns the exit code.

        Nothing that it started is left then.
        """
        become_subreaper()
        bystanders = set(descendants(os.getpid()))
        with self._signals as signals:
            self._stacks.listen(self._events, signals.wake)
            try:
                self._start_agents()
                while not all(agent.closed for agent in self._agents):
                    self._turn(signals)
            finally:
                self._close_agents(signals, bystanders)
            for agent in self._agents:
                for rank in sorted(self._running & self._ranks_of(agent)):
                    self._ended_unseen(agent, rank, "was ended with the job")
            self._output.close()
            self._report()
            self._finish_console(signals)
        return self._exit_code()

    # -- agents --

    def _start_agents(self) -> None:
        self._deadlines.start = time.monotonic() + self._plan.start_timeout
        for host in self._plan.hosts:
            agent = self._start_agent(host)
            self._agents.append(agent)
            if self._survey is None:
                self._send_plan(agent, host)
        if self._survey is not None:
            self._survey.begin(self._agents)

    def _start_agent(self, host: HostPlan, attempt: int = 1) -> AgentProcess:
        starting = {worker.rank for worker in host.workers}
        cluster = self._plan.cluster
        if cluster is not None and host.host in cluster.remote:
            timeout, python = self._plan.start_timeout, self._python(host.host)
            words = ssh.command(host.host, cluster.ssh, timeout, python)
            agent = start_remote(host.host, starting, words, self._turns, attempt)
            self._turns.give(agent)
        else:
            agent = start_local(host.host, starting)
        self._verbose(f"agent for {host.host} is process {agent.process.pid}")
        return agent

    def _try_again(self, agent: AgentProcess, code: int) -> bool:
        """Connects once more to a host that was too busy; False if that is not what happened."""
        assert self._survey is not None
        busy = agent.remote and not agent.greeted and ssh.dropped(code, agent.complaints)
        if not busy or agent.attempt >= _ATTEMPTS or self._stopping:
            return False
        index = self._agents.index(agent)
        agent.close()
        self._agents[index] = self._start_agent(self._plan.hosts[index], agent.attempt + 1)
        self._survey.replace(agent, self._agents[index])
        return True

    def _send_plan(self, agent: AgentProcess, host: HostPlan) -> None:
        if "HOROVOD_ADDRESSES" in host.env:
            self._verbose(f"{host.host} takes part with {host.env['HOROVOD_ADDRESSES']}")
        agent.writer.put_pieces(Kind.PAYLOAD, self._plan.payload)
        agent.writer.put(Kind.PLAN, host.to_json())
        agent.writer.flush()

    def _could_not_start(self, text: str) -> None:
        self._trouble = (text, 1)
        self._stop(0.0)

    def _close_agents(self, signals: SignalReceiver, bystanders: set[int]) -> None:
        self._keepalives.close()
        self._turns.close()
        for agent in self._agents:
            agent.close()
            try:
                agent.process.wait(0 if agent.closed and not agent.done else 5)
            except subprocess.TimeoutExpired:
                agent.process.kill()
                agent.process.wait()
                self._unclean = True
        if not self._unclean:
            return
        # Whatever a dead agent had adopted has been handed on to this process.
        now = time.monotonic()
        sweep = Sweep(now, ORPHANS_KILL_AFTER, bystanders)
        while not sweep.step(time.monotonic()):
            select.select([signals.read], [], [], _TICK)
            if signals.hurried():
                sweep.hurry(time.monotonic())
        if sweep.left:
            self._say("stderr", f"processes {failure.ranges(sorted(sweep.left))} could not be ended")

    def _lost(self, agent: AgentProcess, why: str) -> None:
        """The agent is gone without having finished."""
        agent.closed = True
        self._unclean = True
        if not why:
            # It is about to end by itself, and the way it does is the explanation.
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.process.wait(_ENDING)
        if agent.process.poll() is None:
            agent.process.kill()
        code = agent.process.wait()
        agent.drain_complaints()
        self._turns.take_back(agent)
        if self._survey is not None and not self._survey.over and self._try_again(agent, code):
            return
        self._keepalives.drop(agent.host)
        for rank in sorted(self._running & self._ranks_of(agent)):
            self._running.discard(rank)
            self._ended_unseen(agent, rank, "was lost with its agent")
            self._rendezvous.rank_failed(rank, f"rank {rank} on {agent.host} was lost with its agent")
        if self._survey is not None and not self._survey.over:
            self._survey.on_problem(agent.host, why or self._explain(agent, code))
            return
        if agent.remote:
            self._lost_host(agent, why or ssh.ended(code, agent.complaints))
            return
        if self._trouble is None:
            text = f"the agent on {agent.host} (process {agent.process.pid}) {why or failure.describe(code)}"
            self._trouble = (text + "; the job was ended", failure.exit_code(code) or 1)
        self._stop(0.0)

    def _explain(self, agent: AgentProcess, code: int) -> str:
        if agent.remote and not agent.greeted:
            return ssh.explain(agent.host, code, agent.complaints, self._python(agent.host))
        return f"its agent {failure.describe(code)}"

    def _python(self, host: str) -> str:
        cluster = self._plan.cluster
        return sys.executable if cluster is None else cluster.pythons.get(host, sys.executable)

    def _lost_host(self, agent: AgentProcess, why: str) -> None:
        """The ranks elsewhere find out by themselves, and get the time to say so."""
        self._host_lost = True
        self._events.add("host_lost", host=agent.host, ranks=sorted(self._ranks_of(agent)), reason=why)
        if self._trouble is None:
            text = f"the connection to {agent.host} was lost: {why}"
            self._say("stdout", text)
            self._trouble = (text + "; the job was ended", 1)
        if not self._stopping and self._deadlines.stop is None:
            self._deadlines.stop = time.monotonic() + self._plan.grace_period

    def _ranks_of(self, agent: AgentProcess) -> set[int]:
        host = self._plan.hosts[self._agents.index(agent)]
        return {worker.rank for worker in host.workers}

    # -- event loop --

    def _turn(self, signals: SignalReceiver) -> None:
        poll = select.poll()
        poll.register(signals.read, select.POLLIN)
        readable: dict[int, AgentProcess] = {}
        complaining: dict[int, AgentProcess] = {}
        watched = self._keepalives.descriptors()
        for fd in watched:
            poll.register(fd, select.POLLIN)
        if self._parent is not None:
            poll.register(self._parent, select.POLLIN)
        for agent in self._agents:
            if agent.closed:
                continue
            # A console that does not take more holds the workers back, but never the end of the
            # job.
            if self._stopping or not self._console.full():
                poll.register(agent.reports, select.POLLIN)
                readable[agent.reports] = agent
            if agent.writer.pending:
                poll.register(agent.writer.fd, select.POLLOUT)
            if agent.stderr is not None:
                poll.register(agent.stderr, select.POLLIN)
                complaining[agent.stderr] = agent
        blocked = self._console.waiting_for()
        if blocked is not None:
            poll.register(blocked, select.POLLOUT)
        due = self._deadlines.next()
        if self._survey is not None and self._survey.due is not None:
            due = self._survey.due if due is None else min(due, self._survey.due)
        patience = None if due is None else max(0.0, due - time.monotonic()) * 1000 + 1
        for fd, _ in poll.poll(patience):
            if fd in readable:
                self._read(readable[fd])
            elif fd in complaining and complaining[fd].stderr is not None:
                for line in complaining[fd].read_complaints():
                    self._say("stderr", f"{complaining[fd].host}: {line}")
            elif fd in watched:
                self._check_machine(watched[fd])
            elif fd == self._parent:
                self._parent = None
                self._signalled = self._signalled or signal.SIGTERM
                self._stop(KILL_AFTER)
        for number in signals.received():
            self._on_signal(number)
        for text in self._stacks.answers():
            self._console.put("stderr", text.encode(errors="backslashreplace"))
        for agent in self._agents:
            if not agent.closed:
                agent.writer.flush()
        self._console.write_some()
        if self._console.lost and not self._stopping:
            self._signalled = signal.SIGPIPE
            self._stop(KILL_AFTER)
        self._check_deadlines(time.monotonic())

    def _check_machine(self, host: str) -> None:
        problem = self._keepalives.problem(host)
        agent = next(agent for agent in self._agents if agent.host == host)
        if problem is not None and not agent.closed:
            self._lost(agent, problem)

    def _read(self, agent: AgentProcess) -> None:
        if agent.closed:
            return
        try:
            frames = agent.read()
            if agent.greeted:
                self._turns.take_back(agent)
            if frames is None:
                if agent.done:
                    agent.closed = True
                else:
                    self._lost(agent, "")
                return
            for frame in frames:
                self._on_frame(agent, frame)
        except AgentError as error:
            self._lost(agent, str(error))
        except ValueError as error:
            self._lost(agent, f"sent something unintelligible ({error})")

    def _on_frame(self, agent: AgentProcess, frame: Frame) -> None:
        if frame.kind is Kind.STDOUT:
            self._output.feed(frame.rank, "stdout", frame.payload)
        elif frame.kind is Kind.STDERR:
            self._output.feed(frame.rank, "stderr", frame.payload)
        elif frame.kind is Kind.STARTED:
            self._verbose(f"rank {frame.rank} on {agent.host} is process {frame.payload.decode()}")
            self._events.add("rank_started", rank=frame.rank, host=agent.host, pid=int(frame.payload))
            self._started(agent, frame.rank)
        elif frame.kind is Kind.REFUSED:
            self._started(agent, frame.rank)
            self._on_refused(agent, frame)
        elif frame.kind in (Kind.LISTENING, Kind.REACHED):
            if self._survey is not None:
                self._survey.on_report(agent, frame)
        elif frame.kind is Kind.RESULT:
            self.results.setdefault(frame.rank, bytearray()).extend(frame.payload)
        elif frame.kind is Kind.TIMELINE:
            self.timeline.setdefault(frame.rank, bytearray()).extend(frame.payload)
        elif frame.kind is Kind.EXIT:
            code = int(frame.payload)
            self._on_exit(agent, frame.rank, code, failure.describe(code))
        elif frame.kind is Kind.DONE:
            agent.done = True
            if frame.payload:
                pids = frame.payload.decode()
                self._say("stderr", f"processes {pids} on {agent.host} could not be ended")

    def _started(self, agent: AgentProcess, rank: int) -> None:
        agent.starting.discard(rank)
        if not any(other.starting for other in self._agents):
            self._deadlines.start = None

    def _on_refused(self, agent: AgentProcess, frame: Frame) -> None:
        code, _, reason = frame.payload.decode().partition(" ")
        self._on_exit(agent, frame.rank, int(code), f"could not be started: {reason}")

    def _on_exit(self, agent: AgentProcess, rank: int, code: int, what: str) -> None:
        self._running.discard(rank)
        self._verbose(f"rank {rank} on {agent.host} {what}")
        self._events.add("rank_exit", rank=rank, host=agent.host, code=code, what=what)
        if code == 0:
            # No matter, unless others are still waiting for it to connect.
            text = f"rank {rank} on {agent.host} exited with code 0 while others wait in hvd.init()"
            self._rendezvous.rank_failed(rank, text)
            return
        self._rendezvous.rank_failed(rank, f"rank {rank} on {agent.host} {what}")
        if self._stopping or self._signalled is not None:
            return  # our own doing
        self._say("stdout", f"rank {rank} on {agent.host} {what}")
        if self._trouble is not None:
            return  # a consequence
        self._failures.append(_Failure(rank, agent.host, code, what))
        if len(self._failures) == 1:
            self._deadlines.stop = time.monotonic() + self._plan.grace_period
            if self._running:
                rest = failure.ranks(sorted(self._running))
                grace = f"{self._plan.grace_period:g} s"
                self._say("stdout", f"terminating {rest} in {grace} unless finished by then")

    def _ended_unseen(self, agent: AgentProcess, rank: int, what: str) -> None:
        if rank not in agent.starting:
            self._events.add("rank_exit", rank=rank, host=agent.host, code=None, what=what)

    def _on_signal(self, number: int) -> None:
        now = time.monotonic()
        if number == STACKS and not self._stopping and (said := self._stacks.ask(now)):
            self._say("stderr", said)
            return
        if number in PASSED_ON:
            self._pass_on(number)
        if number not in (*ENDING, STACKS) or (
            number == self._signalled and now < self._signalled_at + SAME_SIGNAL
        ):
            return
        if self._signalled is not None:
            self._say("stderr", "killing all processes")
            self._stop(0.0)
            return
        self._signalled, self._signalled_at = number, now
        name = signal.Signals(number).name
        self._events.add("signal", signal=name)
        if number == STACKS:
            self._say("stderr", f"{name}: killing all processes")
            self._stop(0.0)
        elif number == signal.SIGINT and not self._stopping:
            self._say("stderr", f"{name}: interrupting all ranks; once more kills them")
            self._pass_on(number)
            self._deadlines.stop = now + self._plan.grace_period
        else:
            grace = self._plan.term_grace
            self._say("stderr", f"{name}: terminating all ranks within {grace:g} s; once more kills them")
            self._stop(grace)

    def _pass_on(self, number: int) -> None:
        for agent in self._agents:
            agent.writer.put(Kind.SIGNAL, str(int(number)))

    def _check_deadlines(self, now: float) -> None:
        deadlines = self._deadlines
        survey = self._survey
        if survey is not None and survey.due is not None and now >= survey.due:
            survey.give_up("it had not answered when another host failed")
        if deadlines.start is not None and now >= deadlines.start and survey is not None:
            survey.give_up(
                f"no answer within {self._plan.start_timeout:g} s: it is down, or a firewall drops what is "
                "sent to it; if it is just slow, raise --start-timeout"
            )
        if deadlines.start is not None and now >= deadlines.start:
            late = [agent.host for agent in self._agents if agent.starting]
            self._trouble = (
                f"starting processes on {', '.join(late)} took longer than {self._plan.start_timeout:g} s; "
                "if that host is just slow, raise --start-timeout",
                1,
            )
            self._stop(1.0)
        if deadlines.stop is not None and now >= deadlines.stop:
            self._stop(KILL_AFTER)
        if deadlines.kill_agents is not None and now >= deadlines.kill_agents:
            deadlines.kill_agents = None
            for agent in self._agents:
                if not agent.closed:
                    self._lost(agent, "did not stop when told to")

    def _stop(self, kill_after: float) -> None:
        """Ends every process of the job: SIGTERM now, SIGKILL after a while."""
        self._stopping = True
        self._deadlines.start = self._deadlines.stop = None
        limit = time.monotonic() + kill_after + STOP_LIMIT
        self._deadlines.kill_agents = min(self._deadlines.kill_agents or limit, limit)
        for agent in self._agents:
            if agent.remote and not agent.greeted and not agent.closed:
                # Still connecting. If an agent starts there after all, it finds its stdin closed.
                agent.process.kill()
                agent.closed = True
            elif not agent.closed:
                agent.writer.put(Kind.STOP, str(kill_after))
                agent.writer.flush()

    # -- words --

    def _say(self, stream: str, text: str) -> None:
        self._console.put(stream, f"horovodrun: {text}\n".encode(errors="backslashreplace"))

    def _verbose(self, text: str) -> None:
        if self._plan.verbose:
            self._say("stderr", text)

    def _report(self) -> None:
        if self._signalled is not None:
            return
        first = self._cause()
        if first is not None:
            self._events.add("failure", rank=first.rank, host=first.host, code=first.code, reason=first.what)
            text = failure.report(
                first.rank, first.host, first.what, first.code, self._output.tail(first.rank)
            )
            self._console.put("stderr", text.encode(errors="backslashreplace"))
        if self._trouble is not None:
            if first is None:
                self._events.add("failure", reason=self._trouble[0])
            self._say("stderr", self._trouble[0])

    def _cause(self) -> _Failure | None:
        """The failure that caused the others; none if the loss of a host has caused them all."""
        if not self._failures:
            return None
        ends = [(each.code, self._output.tail(each.rank)) for each in self._failures]
        if self._host_lost and all(failure.is_consequence(*end) for end in ends):
            return None
        return self._failures[failure.cause(ends)]

    def _finish_console(self, signals: SignalReceiver) -> None:
        # A slow reader, a pager perhaps, may take its time, but not with a job that was to be
        # ended.
        deadline = float("inf") if self._signalled is None else time.monotonic() + _LAST_WORDS
        self._console.finish(lambda: signals.hurried() or self._console.lost or time.monotonic() > deadline)

    def _exit_code(self) -> int:
        if self._signalled is not None:
            return 128 + self._signalled
        first = self._cause()
        if first is not None:
            return failure.exit_code(first.code)
        return 0 if self._trouble is None else self._trouble[1]
