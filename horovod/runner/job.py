"""Supervision of one job: starts the agents, carries output, decides when it is over and how it ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from horovod.runner import failure, links, ssh
from horovod.runner.frames import Frame, Kind
from horovod.runner.gathering import Gathering
from horovod.runner.links import Link, LinkError
from horovod.runner.output import Console, RankOutput
from horovod.runner.plan import HostPlan, JobPlan
from horovod.runner.processes import Sweep, become_subreaper, descendants
from horovod.runner.rendezvous import Rendezvous
from horovod.runner.wake import ENDING, PASSED_ON, Wake
from horovod.runner.watches import Watches

KILL_AFTER = 5.0  # seconds from SIGTERM to SIGKILL
ORPHANS_KILL_AFTER = 0.5  # the same for what a dead agent has left behind
STOP_LIMIT = Sweep.GIVE_UP_AFTER + 5.0  # after SIGKILL an agent that was told to stop is killed itself
SAME_SIGNAL = 1.0  # seconds in which a signal counts once: from the terminal and from a wrapper script
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

    def __init__(self, plan: JobPlan, rendezvous: Rendezvous, console: Console | None = None) -> None:
        self._plan = plan
        self._rendezvous = rendezvous
        self._console = console or Console()
        self._output = RankOutput(self._console, plan.size, plan.output_directory, plan.timestamps)
        self._links: list[Link] = []
        self._turns = links.Turns(_AT_A_TIME)
        self._wake = Wake()
        self._watches = Watches(self._wake.nudge)
        self._gathering: Gathering | None = None
        if plan.cluster is not None:
            self._gathering = Gathering(
                plan,
                plan.cluster,
                rendezvous,
                self._watches,
                say=lambda text: self._say("stderr", text),
                send_plan=self._send_plan,
                failed=self._could_not_start,
            )
        self._parent = plan.parent
        self.results: dict[int, bytearray] = {}  # by rank, what workers that run a function wrote
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
        """Runs the job to its end and returns the exit code. Nothing that it started is left then."""
        become_subreaper()
        bystanders = set(descendants(os.getpid()))
        with self._wake as wake:
            try:
                self._start_agents()
                while not all(link.closed for link in self._links):
                    self._turn(wake)
            finally:
                self._close_agents(wake, bystanders)
            self._output.close()
            self._report()
            self._finish_console(wake)
        return self._exit_code()

    # -- agents -----------------------------------------------------------------------------------------

    def _start_agents(self) -> None:
        self._deadlines.start = time.monotonic() + self._plan.start_timeout
        for host in self._plan.hosts:
            link = self._start_agent(host)
            self._links.append(link)
            if self._gathering is None:
                self._send_plan(link, host)
        if self._gathering is not None:
            self._gathering.begin(self._links)

    def _start_agent(self, host: HostPlan, attempt: int = 1) -> Link:
        starting = {worker.rank for worker in host.workers}
        cluster = self._plan.cluster
        if cluster is not None and host.host in cluster.remote:
            timeout, python = self._plan.start_timeout, self._python(host.host)
            words = ssh.command(host.host, cluster.ssh, timeout, python)
            link = links.start_remote(host.host, starting, words, self._turns, attempt)
            self._turns.give(link)
        else:
            link = links.start_local(host.host, starting)
        self._verbose(f"agent for {host.host} is process {link.process.pid}")
        return link

    def _try_again(self, link: Link, code: int) -> bool:
        """Connects once more to a host that was too busy; False if that is not what happened."""
        assert self._gathering is not None
        busy = link.remote and not link.greeted and ssh.dropped(code, link.complaints)
        if not busy or link.attempt >= _ATTEMPTS or self._stopping:
            return False
        index = self._links.index(link)
        link.close()
        self._links[index] = self._start_agent(self._plan.hosts[index], link.attempt + 1)
        self._gathering.replace(link, self._links[index])
        return True

    def _send_plan(self, link: Link, host: HostPlan) -> None:
        if "HOROVOD_ADDRESSES" in host.env:
            self._verbose(f"{host.host} takes part with {host.env['HOROVOD_ADDRESSES']}")
        link.writer.put_pieces(Kind.PAYLOAD, self._plan.payload)
        link.writer.put(Kind.PLAN, host.to_json())
        link.writer.flush()

    def _could_not_start(self, text: str) -> None:
        self._trouble = (text, 1)
        self._stop(0.0)

    def _close_agents(self, wake: Wake, bystanders: set[int]) -> None:
        self._watches.close()
        self._turns.close()
        for link in self._links:
            link.close()
            try:
                link.process.wait(0 if link.closed and not link.done else 5)
            except subprocess.TimeoutExpired:
                link.process.kill()
                link.process.wait()
                self._unclean = True
        if not self._unclean:
            return
        # Whatever a dead agent had adopted has been handed on to this process.
        now = time.monotonic()
        sweep = Sweep(now, ORPHANS_KILL_AFTER, bystanders)
        while not sweep.step(time.monotonic()):
            select.select([wake.read], [], [], _TICK)
            if wake.hurried():
                sweep.hurry(time.monotonic())
        if sweep.left:
            self._say("stderr", f"processes {failure.ranges(sorted(sweep.left))} could not be ended")

    def _lost(self, link: Link, why: str) -> None:
        """The agent is gone without having finished."""
        link.closed = True
        self._unclean = True
        if not why:
            # It is about to end by itself, and the way it does is the explanation.
            with contextlib.suppress(subprocess.TimeoutExpired):
                link.process.wait(_ENDING)
        if link.process.poll() is None:
            link.process.kill()
        code = link.process.wait()
        link.drain_complaints()
        self._turns.take_back(link)
        if self._gathering is not None and not self._gathering.over and self._try_again(link, code):
            return
        self._watches.drop(link.host)
        for rank in sorted(self._running & self._ranks_of(link)):
            self._running.discard(rank)
            self._rendezvous.rank_failed(rank, f"rank {rank} on {link.host} was lost with its agent")
        if self._gathering is not None and not self._gathering.over:
            self._gathering.on_problem(link.host, why or self._explain(link, code))
            return
        if link.remote:
            self._lost_host(link, why or ssh.ended(code, link.complaints))
            return
        if self._trouble is None:
            text = f"the agent on {link.host} (process {link.process.pid}) {why or failure.describe(code)}"
            self._trouble = (text + "; the job was ended", failure.exit_code(code) or 1)
        self._stop(0.0)

    def _explain(self, link: Link, code: int) -> str:
        if link.remote and not link.greeted:
            return ssh.explain(link.host, code, link.complaints, self._python(link.host))
        return f"its agent {failure.describe(code)}"

    def _python(self, host: str) -> str:
        cluster = self._plan.cluster
        return sys.executable if cluster is None else cluster.pythons.get(host, sys.executable)

    def _lost_host(self, link: Link, why: str) -> None:
        """The ranks elsewhere find out by themselves; they get the time to say so, or already have."""
        self._host_lost = True
        if self._trouble is None:
            text = f"the connection to {link.host} was lost: {why}"
            self._say("stdout", text)
            self._trouble = (text + "; the job was ended", 1)
        if not self._stopping and self._deadlines.stop is None:
            self._deadlines.stop = time.monotonic() + self._plan.grace_period

    def _ranks_of(self, link: Link) -> set[int]:
        host = self._plan.hosts[self._links.index(link)]
        return {worker.rank for worker in host.workers}

    # -- event loop -------------------------------------------------------------------------------------

    def _turn(self, wake: Wake) -> None:
        poll = select.poll()
        poll.register(wake.read, select.POLLIN)
        readable: dict[int, Link] = {}
        complaining: dict[int, Link] = {}
        watched = self._watches.descriptors()
        for fd in watched:
            poll.register(fd, select.POLLIN)
        if self._parent is not None:
            poll.register(self._parent, select.POLLIN)
        for link in self._links:
            if link.closed:
                continue
            # A console that does not take more holds the workers back, but never the end of the job.
            if self._stopping or not self._console.full():
                poll.register(link.reports, select.POLLIN)
                readable[link.reports] = link
            if link.writer.pending:
                poll.register(link.writer.fd, select.POLLOUT)
            if link.stderr is not None:
                poll.register(link.stderr, select.POLLIN)
                complaining[link.stderr] = link
        blocked = self._console.waiting_for()
        if blocked is not None:
            poll.register(blocked, select.POLLOUT)
        due = self._deadlines.next()
        if self._gathering is not None and self._gathering.due is not None:
            due = self._gathering.due if due is None else min(due, self._gathering.due)
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
        for number in wake.received():
            self._on_signal(number)
        for link in self._links:
            if not link.closed:
                link.writer.flush()
        self._console.write_some()
        if self._console.lost and not self._stopping:
            self._signalled = signal.SIGPIPE
            self._stop(KILL_AFTER)
        self._check_deadlines(time.monotonic())

    def _check_machine(self, host: str) -> None:
        problem = self._watches.problem(host)
        link = next(link for link in self._links if link.host == host)
        if problem is not None and not link.closed:
            self._lost(link, problem)

    def _read(self, link: Link) -> None:
        if link.closed:
            return
        try:
            frames = link.read()
            if link.greeted:
                self._turns.take_back(link)
            if frames is None:
                if link.done:
                    link.closed = True
                else:
                    self._lost(link, "")
                return
            for frame in frames:
                self._on_frame(link, frame)
        except LinkError as error:
            self._lost(link, str(error))
        except ValueError as error:
            self._lost(link, f"sent something unintelligible ({error})")

    def _on_frame(self, link: Link, frame: Frame) -> None:
        if frame.kind is Kind.STDOUT:
            self._output.feed(frame.rank, "stdout", frame.payload)
        elif frame.kind is Kind.STDERR:
            self._output.feed(frame.rank, "stderr", frame.payload)
        elif frame.kind is Kind.STARTED:
            self._verbose(f"rank {frame.rank} on {link.host} is process {frame.payload.decode()}")
            self._started(link, frame.rank)
        elif frame.kind is Kind.REFUSED:
            self._started(link, frame.rank)
            self._on_refused(link, frame)
        elif frame.kind in (Kind.LISTENING, Kind.REACHED):
            if self._gathering is not None:
                self._gathering.on_report(link, frame)
        elif frame.kind is Kind.RESULT:
            self.results.setdefault(frame.rank, bytearray()).extend(frame.payload)
        elif frame.kind is Kind.EXIT:
            code = int(frame.payload)
            self._on_exit(link, frame.rank, code, failure.describe(code))
        elif frame.kind is Kind.DONE:
            link.done = True
            if frame.payload:
                pids = frame.payload.decode()
                self._say("stderr", f"processes {pids} on {link.host} could not be ended")

    def _started(self, link: Link, rank: int) -> None:
        link.starting.discard(rank)
        if not any(other.starting for other in self._links):
            self._deadlines.start = None

    def _on_refused(self, link: Link, frame: Frame) -> None:
        code, _, reason = frame.payload.decode().partition(" ")
        self._on_exit(link, frame.rank, int(code), f"could not be started: {reason}")

    def _on_exit(self, link: Link, rank: int, code: int, what: str) -> None:
        self._running.discard(rank)
        self._verbose(f"rank {rank} on {link.host} {what}")
        if code == 0:
            # No matter, unless others are still waiting for it to connect.
            text = f"rank {rank} on {link.host} exited with code 0 while others wait in hvd.init()"
            self._rendezvous.rank_failed(rank, text)
            return
        self._rendezvous.rank_failed(rank, f"rank {rank} on {link.host} {what}")
        if self._stopping or self._signalled is not None:
            return  # our own doing
        self._say("stdout", f"rank {rank} on {link.host} {what}")
        if self._trouble is not None:
            return  # a consequence
        self._failures.append(_Failure(rank, link.host, code, what))
        if len(self._failures) == 1:
            self._deadlines.stop = time.monotonic() + self._plan.grace_period
            if self._running:
                rest = failure.ranks(sorted(self._running))
                grace = f"{self._plan.grace_period:g} s"
                self._say("stdout", f"terminating {rest} in {grace} unless finished by then")

    def _on_signal(self, number: int) -> None:
        now = time.monotonic()
        if number in PASSED_ON:
            self._pass_on(number)
        if number not in ENDING or (number == self._signalled and now < self._signalled_at + SAME_SIGNAL):
            return
        if self._signalled is not None:
            self._say("stderr", "killing all processes")
            self._stop(0.0)
            return
        self._signalled, self._signalled_at = number, now
        name = signal.Signals(number).name
        if number == signal.SIGINT and not self._stopping:
            self._say("stderr", f"{name}: interrupting all ranks; once more kills them")
            self._pass_on(number)
            self._deadlines.stop = now + self._plan.grace_period
        else:
            grace = self._plan.term_grace
            self._say("stderr", f"{name}: terminating all ranks within {grace:g} s; once more kills them")
            self._stop(grace)

    def _pass_on(self, number: int) -> None:
        for link in self._links:
            link.writer.put(Kind.SIGNAL, str(int(number)))

    def _check_deadlines(self, now: float) -> None:
        deadlines = self._deadlines
        gathering = self._gathering
        if gathering is not None and gathering.due is not None and now >= gathering.due:
            gathering.give_up("it had not answered when another host failed")
        if deadlines.start is not None and now >= deadlines.start and gathering is not None:
            gathering.give_up(
                f"no answer within {self._plan.start_timeout:g} s: it is down, or a firewall drops what is "
                "sent to it; if it is just slow, raise --start-timeout"
            )
        if deadlines.start is not None and now >= deadlines.start:
            late = [link.host for link in self._links if link.starting]
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
            for link in self._links:
                if not link.closed:
                    self._lost(link, "did not stop when told to")

    def _stop(self, kill_after: float) -> None:
        """Ends every process of the job: SIGTERM now, SIGKILL after a while."""
        self._stopping = True
        self._deadlines.start = self._deadlines.stop = None
        limit = time.monotonic() + kill_after + STOP_LIMIT
        self._deadlines.kill_agents = min(self._deadlines.kill_agents or limit, limit)
        for link in self._links:
            if link.remote and not link.greeted and not link.closed:
                # Still connecting. If an agent comes to life there after all, it finds its stdin closed.
                link.process.kill()
                link.closed = True
            elif not link.closed:
                link.writer.put(Kind.STOP, str(kill_after))
                link.writer.flush()

    # -- words ------------------------------------------------------------------------------------------

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
            text = failure.report(
                first.rank, first.host, first.what, first.code, self._output.tail(first.rank)
            )
            self._console.put("stderr", text.encode(errors="backslashreplace"))
        if self._trouble is not None:
            self._say("stderr", self._trouble[0])

    def _cause(self) -> _Failure | None:
        """The failure that brought about the others; none if all of them come from the loss of a host."""
        if not self._failures:
            return None
        ends = [(each.code, self._output.tail(each.rank)) for each in self._failures]
        if self._host_lost and all(failure.is_consequence(*end) for end in ends):
            return None
        return self._failures[failure.cause(ends)]

    def _finish_console(self, wake: Wake) -> None:
        # A slow reader, a pager perhaps, may take its time, but not with a job that was to be ended.
        deadline = float("inf") if self._signalled is None else time.monotonic() + _LAST_WORDS
        self._console.finish(lambda: wake.hurried() or self._console.lost or time.monotonic() > deadline)

    def _exit_code(self) -> int:
        if self._signalled is not None:
            return 128 + self._signalled
        first = self._cause()
        if first is not None:
            return failure.exit_code(first.code)
        return 0 if self._trouble is None else self._trouble[1]
