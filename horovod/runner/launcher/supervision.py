"""Supervision of a job, whatever its policy: agents, their output, signals, and an end that leaves
nothing behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from horovod.runner import ssh
from horovod.runner.agent.frames import Frame, Kind
from horovod.runner.launcher import failure
from horovod.runner.launcher.agent_process import AgentError, AgentProcess, Turns, start_local, start_remote
from horovod.runner.launcher.event_log import EventLog
from horovod.runner.launcher.host_keepalive import HostKeepalives
from horovod.runner.launcher.output import Console
from horovod.runner.launcher.signals import ASKED, ENDING, PASSED_ON, STACKS, SignalReceiver
from horovod.runner.launcher.stack_requests import StackRequests
from horovod.runner.plan.job_plan import Cluster
from horovod.runner.processes import LONGEST_WAIT, Sweep, become_subreaper, descendants

KILL_AFTER = 5.0  # seconds from SIGTERM to SIGKILL
ORPHANS_KILL_AFTER = 0.5  # the same for what a dead agent has left behind
# After SIGKILL an agent that was told to stop is killed itself
STOP_LIMIT = Sweep.GIVE_UP_AFTER + 5.0
# Seconds in which a signal counts once: from the terminal and from a wrapper script
SAME_SIGNAL = 1.0
_TICK = 0.03
_ENDING = 1.0  # seconds between the end of an agent's pipe and that of its guardian
_AT_A_TIME = 32  # other machines that are being connected to
_LAST_WORDS = 2.0  # seconds for the rest of the output of a job that a signal has ended


@dataclass(frozen=True)
class Manner:
    """How a job is supervised; times are seconds.

    ``cluster`` is None if all hosts are this machine. ``parent`` is a descriptor whose end means
    SIGTERM.
    """

    grace_period: float
    term_grace: float
    start_timeout: float
    host_timeout: float = 10.0  # of silence of another machine
    verbose: bool = False
    cluster: Cluster | None = None
    parent: int | None = None


@dataclass(frozen=True)
class Watch:
    """How a job is watched: the log of what happens, and who asks the ranks where they are."""

    events: EventLog
    stacks: StackRequests


class Supervision(ABC):
    """The launcher's one loop. What is to be done about an event is up to the policy, a subclass."""

    def __init__(self, manner: Manner, watch: Watch) -> None:
        self._manner = manner
        self._console = Console()
        self._log = watch.events
        self._log.warn = lambda text: self._say("stderr", text)
        self._stacks = watch.stacks
        self._agents: list[AgentProcess] = []
        self.recorded: list[bytearray] = []  # of other machines: packed parts of a timeline
        self._turns = Turns(_AT_A_TIME)
        self._signals = SignalReceiver()
        self._keepalives = HostKeepalives(self._signals.wake, manner.host_timeout)
        self._parent = manner.parent
        self._stop_at: float | None = None  # when the job is ended unless it has ended by then
        self._kill_agents_at: float | None = None
        self._trouble: tuple[str, int] | None = None  # of the launcher's own: text and exit code
        self._signalled: int | None = None
        self._signalled_at = 0.0
        self._stopping = False
        self._unclean = False

    def _keep_recorded(self, agent: AgentProcess, piece: bytes) -> None:
        if not agent.recorded:
            self.recorded.append(agent.recorded)
        agent.recorded.extend(piece)

    def run(self) -> int:
        """Runs the job to its end and returns the exit code.

        Nothing that it started is left then.
        """
        become_subreaper()
        bystanders = set(descendants(os.getpid()))
        with self._signals as signals:
            self._stacks.listen(self._log, signals.wake)
            try:
                self._begin()
                while not self._over():
                    self._turn(signals)
            finally:
                self._close_agents(signals, bystanders)
            self._finish()
            self._finish_console(signals)
        return self._exit_code()

    # -- the policy --

    @abstractmethod
    def _begin(self) -> None:
        """Starts the job."""

    @abstractmethod
    def _over(self) -> bool:
        """Whether it has ended, and nothing is left to wait for."""

    @abstractmethod
    def _on_frame(self, agent: AgentProcess, frame: Frame) -> None:
        """An agent has said something."""

    @abstractmethod
    def _on_lost(self, agent: AgentProcess, why: str, code: int) -> None:
        """An agent is gone without having finished; ``why`` is empty if ``code`` tells."""

    @abstractmethod
    def _finish(self) -> None:
        """All agents have ended: the last words."""

    @abstractmethod
    def _exit_code(self) -> int:
        """What the launcher is to exit with."""

    def _next_due(self) -> float | None:
        """When check_deadlines() has to be called without an event."""
        return min((at for at in (self._stop_at, self._kill_agents_at) if at is not None), default=None)

    def _check_deadlines(self, now: float) -> None:
        """What is due is done."""
        if self._stop_at is not None and now >= self._stop_at:
            self._stop(KILL_AFTER)
        if self._kill_agents_at is not None and now >= self._kill_agents_at:
            self._kill_agents_at = None
            for agent in list(self._agents):
                if not agent.closed:
                    self._lost(agent, "did not stop when told to")

    def _further_descriptors(self) -> dict[int, Callable[[], None]]:
        """What else to poll, and what to do when it is readable."""
        return {}

    # -- agents --

    def _start_agent(self, host: str, starting: set[int], attempt: int = 1) -> AgentProcess:
        cluster = self._manner.cluster
        if cluster is not None and self._is_remote(host):
            timeout, python = self._manner.start_timeout, self._python(host)
            words = ssh.command(host, cluster.ssh, timeout, python)
            agent = start_remote(host, starting, words, self._turns, attempt)
            self._turns.give(agent)
        else:
            agent = start_local(host, starting)
        self._verbose(f"agent for {host} is process {agent.process.pid}")
        return agent

    def _is_remote(self, host: str) -> bool:
        """Whether a host is another machine."""
        return self._manner.cluster is not None and host in self._manner.cluster.remote

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
        self._on_lost(agent, why, code)

    def _explain(self, agent: AgentProcess, code: int) -> str:
        if agent.remote and not agent.greeted:
            return ssh.explain(agent.host, code, agent.complaints, self._python(agent.host))
        return f"its agent {failure.describe(code)}"

    def _python(self, host: str) -> str:
        cluster = self._manner.cluster
        return sys.executable if cluster is None else cluster.pythons.get(host, sys.executable)

    # -- event loop --

    def _turn(self, signals: SignalReceiver) -> None:
        poll = select.poll()
        poll.register(signals.read, select.POLLIN)
        readable: dict[int, AgentProcess] = {}
        complaining: dict[int, AgentProcess] = {}
        watched = self._keepalives.descriptors()
        further = self._further_descriptors()
        for fd in (*watched, *further):
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
        due = self._next_due()
        patience = None if due is None else min(max(0.0, due - time.monotonic()), LONGEST_WAIT) * 1000 + 1
        for fd, _ in poll.poll(patience):
            if fd in readable:
                self._read(readable[fd])
            elif fd in complaining and complaining[fd].stderr is not None:
                for line in complaining[fd].read_complaints():
                    self._say("stderr", f"{complaining[fd].host}: {line}")
            elif fd in watched:
                self._check_machine(watched[fd])
            elif fd in further:
                further[fd]()
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
        agent = self._agent_of(host)
        if problem is not None and agent is not None and not agent.closed:
            self._lost(agent, problem)

    def _agent_of(self, host: str) -> AgentProcess | None:
        """The agent of a host; of several, which came one after the other, the last."""
        return next((agent for agent in reversed(self._agents) if agent.host == host), None)

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

    def _on_done(self, agent: AgentProcess, frame: Frame) -> None:
        agent.done = True
        if frame.payload:
            pids = frame.payload.decode()
            self._say("stderr", f"processes {pids} on {agent.host} could not be ended")

    # -- signals --

    def _on_signal(self, number: int) -> None:
        now = time.monotonic()
        if number == ASKED:
            self._stacks.request()
            return
        if number == STACKS and not self._stopping and (said := self._stacks.ask(now)):
            self._say("stderr", said)
            return
        if number in PASSED_ON:
            self._pass_on(number)
        ending = (*ENDING, STACKS)
        if number not in ending or (number == self._signalled and now < self._signalled_at + SAME_SIGNAL):
            return
        if self._signalled is not None:
            self._say("stderr", "killing all processes")
            self._stop(0.0)
            return
        self._signalled, self._signalled_at = number, now
        name = signal.Signals(number).name
        self._log.add("signal", signal=name)
        if number == STACKS:
            self._say("stderr", f"{name}: killing all processes")
            self._stop(0.0)
        elif number == signal.SIGINT and not self._stopping:
            self._say("stderr", f"{name}: interrupting all ranks; once more kills them")
            self._pass_on(number)
            self._stop_at = now + self._manner.grace_period
        else:
            grace = self._manner.term_grace
            self._say("stderr", f"{name}: terminating all ranks within {grace:g} s; once more kills them")
            self._stop(grace)

    def _pass_on(self, number: int) -> None:
        for agent in self._agents:
            agent.writer.put(Kind.SIGNAL, str(int(number)))

    def _stop(self, kill_after: float) -> None:
        """Ends every process of the job: SIGTERM now, SIGKILL after a while."""
        self._stopping = True
        self._stop_at = None
        limit = time.monotonic() + kill_after + STOP_LIMIT
        self._kill_agents_at = min(self._kill_agents_at or limit, limit)
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
        if self._manner.verbose:
            self._say("stderr", text)

    def _finish_console(self, signals: SignalReceiver) -> None:
        # A slow reader, a pager perhaps, may take its time, but not with a job that was to be
        # ended.
        deadline = float("inf") if self._signalled is None else time.monotonic() + _LAST_WORDS
        self._console.finish(lambda: signals.hurried() or self._console.lost or time.monotonic() > deadline)
