"""Supervision of one job: starts the agents, carries output, decides when it is over and how it ended."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from horovod.runner import failure
from horovod.runner.command import NOT_EXECUTABLE, NOT_FOUND
from horovod.runner.frames import Frame, FrameReader, FrameWriter, Kind
from horovod.runner.output import Console, RankOutput
from horovod.runner.plan import HostPlan
from horovod.runner.processes import Sweep, become_subreaper, descendants

KILL_AFTER = 5.0  # seconds from SIGTERM to SIGKILL
ORPHANS_KILL_AFTER = 0.5  # the same for what a dead agent has left behind
STOP_LIMIT = KILL_AFTER + Sweep.GIVE_UP_AFTER + 5.0  # then an agent that was told to stop is killed itself
_CHUNK = 1 << 18
_TICK = 0.03
_LAST_WORDS = 2.0  # seconds for the rest of the output of a job that a signal has ended
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Rendezvous(Protocol):
    """What the job needs of the rendezvous server."""

    def rank_failed(self, rank: int, text: str) -> None:
        """Makes ranks that are still looking for ``rank`` fail at once."""


@dataclass(frozen=True)
class JobPlan:
    """What to run. Times are seconds."""

    hosts: list[HostPlan]
    grace_period: float
    start_timeout: float
    output_directory: str | None = None
    timestamps: bool = False
    verbose: bool = False

    @property
    def size(self) -> int:
        return sum(len(host.workers) for host in self.hosts)


@dataclass
class _Link:
    """An agent and the connection to it."""

    host: str
    process: subprocess.Popen[bytes]
    reader: FrameReader
    writer: FrameWriter
    starting: set[int]
    done: bool = False  # it has said that nothing is left
    closed: bool = False  # its end of the pipe is closed

    @property
    def reports(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()


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


@dataclass
class _Wake:
    """Signals as bytes on a socket, while the job runs."""

    read: socket.socket = field(init=False)
    write: socket.socket = field(init=False)
    previous: dict[int, Any] = field(default_factory=dict)
    previous_fd: int = -1

    def __enter__(self) -> _Wake:
        self.read, self.write = socket.socketpair()
        self.read.setblocking(False)
        self.write.setblocking(False)
        if threading.current_thread() is threading.main_thread():

            def wake(number: int, frame: FrameType | None) -> None:
                pass  # the wake-up descriptor does the work

            self.previous_fd = signal.set_wakeup_fd(self.write.fileno(), warn_on_full_buffer=False)
            for number in _SIGNALS:
                # nohup and background jobs of scripts ignore a signal on purpose.
                if signal.getsignal(number) != signal.SIG_IGN:
                    self.previous[number] = signal.signal(number, wake)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
        if self.previous:
            signal.set_wakeup_fd(self.previous_fd)
        self.read.close()
        self.write.close()

    def received(self) -> list[int]:
        try:
            return list(self.read.recv(4096))
        except BlockingIOError:
            return []


class Job:
    """One run of a plan."""

    def __init__(self, plan: JobPlan, rendezvous: Rendezvous, console: Console | None = None) -> None:
        self._plan = plan
        self._rendezvous = rendezvous
        self._console = console or Console()
        self._output = RankOutput(self._console, plan.size, plan.output_directory, plan.timestamps)
        self._links: list[_Link] = []
        self._running = {worker.rank for host in plan.hosts for worker in host.workers}
        self._deadlines = _Deadlines()
        self._failures: list[_Failure] = []  # in the order of their arrival, without our own doing
        self._trouble: tuple[str, int] | None = None  # of the launcher's own: text and exit code
        self._signalled: int | None = None
        self._stopping = False
        self._unclean = False

    def run(self) -> int:
        """Runs the job to its end and returns the exit code. Nothing that it started is left then."""
        become_subreaper()
        bystanders = set(descendants(os.getpid()))
        with _Wake() as wake:
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
        now = time.monotonic()
        self._deadlines.start = now + self._plan.start_timeout
        for host in self._plan.hosts:
            process = _start_local_agent()
            assert process.stdin is not None and process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)
            starting = {worker.rank for worker in host.workers}
            link = _Link(host.host, process, FrameReader(), FrameWriter(process.stdin.fileno()), starting)
            link.writer.put(Kind.PLAN, host.to_json())
            link.writer.flush()
            self._links.append(link)
            self._verbose(f"agent for {host.host} is process {process.pid}")

    def _close_agents(self, wake: _Wake, bystanders: set[int]) -> None:
        for link in self._links:
            assert link.process.stdin is not None and link.process.stdout is not None
            link.process.stdin.close()
            link.process.stdout.close()
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
            if wake.received():
                sweep.hurry(time.monotonic())
        if sweep.left:
            self._say("stderr", f"processes {failure.ranges(sorted(sweep.left))} could not be ended")

    def _lost(self, link: _Link, why: str) -> None:
        """The agent is gone without having finished."""
        link.closed = True
        self._unclean = True
        if link.process.poll() is None:
            link.process.kill()
        code = link.process.wait()
        for rank in sorted(self._running & self._ranks_of(link)):
            self._running.discard(rank)
            self._rendezvous.rank_failed(rank, f"rank {rank} on {link.host} was lost with its agent")
        if self._trouble is None:
            text = f"the agent on {link.host} (process {link.process.pid}) {why or failure.describe(code)}"
            self._trouble = (text + "; the job was ended", failure.exit_code(code) or 1)
        self._stop(0.0)

    def _ranks_of(self, link: _Link) -> set[int]:
        host = self._plan.hosts[self._links.index(link)]
        return {worker.rank for worker in host.workers}

    # -- event loop -------------------------------------------------------------------------------------

    def _turn(self, wake: _Wake) -> None:
        poll = select.poll()
        poll.register(wake.read, select.POLLIN)
        readable: dict[int, _Link] = {}
        for link in self._links:
            if link.closed:
                continue
            # A console that does not take more holds the workers back, but never the end of the job.
            if self._stopping or not self._console.full():
                poll.register(link.reports, select.POLLIN)
                readable[link.reports] = link
            if link.writer.pending:
                poll.register(link.writer.fd, select.POLLOUT)
        blocked = self._console.waiting_for()
        if blocked is not None:
            poll.register(blocked, select.POLLOUT)
        due = self._deadlines.next()
        patience = None if due is None else max(0.0, due - time.monotonic()) * 1000 + 1
        for fd, _ in poll.poll(patience):
            if fd in readable:
                self._read(readable[fd])
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

    def _read(self, link: _Link) -> None:
        try:
            data = os.read(link.reports, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            if link.done:
                link.closed = True
            else:
                self._lost(link, "")
            return
        try:
            for frame in link.reader.feed(data):
                self._on_frame(link, frame)
        except ValueError as error:
            self._lost(link, f"sent something unintelligible ({error})")

    def _on_frame(self, link: _Link, frame: Frame) -> None:
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
        elif frame.kind is Kind.EXIT:
            code = int(frame.payload)
            self._on_exit(link, frame.rank, code, failure.describe(code))
        elif frame.kind is Kind.DONE:
            link.done = True
            if frame.payload:
                pids = frame.payload.decode()
                self._say("stderr", f"processes {pids} on {link.host} could not be ended")

    def _started(self, link: _Link, rank: int) -> None:
        link.starting.discard(rank)
        if not any(other.starting for other in self._links):
            self._deadlines.start = None

    def _on_refused(self, link: _Link, frame: Frame) -> None:
        number, _, reason = frame.payload.decode().partition(" ")
        command = self._plan.hosts[0].command[0]
        text = f"could not be started: {command}: {reason}"
        code = NOT_FOUND if int(number) == errno.ENOENT else NOT_EXECUTABLE
        self._on_exit(link, frame.rank, code, text)

    def _on_exit(self, link: _Link, rank: int, code: int, what: str) -> None:
        self._running.discard(rank)
        self._verbose(f"rank {rank} on {link.host} {what}")
        if code == 0:
            return
        self._rendezvous.rank_failed(rank, f"rank {rank} on {link.host} {what}")
        if self._stopping or self._signalled is not None:
            return  # our own doing
        self._say("stdout", f"rank {rank} on {link.host} {what}")
        self._failures.append(_Failure(rank, link.host, code, what))
        if len(self._failures) == 1:
            self._deadlines.stop = time.monotonic() + self._plan.grace_period
            if self._running:
                rest = failure.ranks(sorted(self._running))
                grace = f"{self._plan.grace_period:g} s"
                self._say("stdout", f"terminating {rest} in {grace} unless finished by then")

    def _on_signal(self, number: int) -> None:
        if number not in _SIGNALS:
            return
        if self._signalled is not None:
            self._say("stderr", "killing all processes")
            self._stop(0.0)
            return
        self._signalled = number
        name = signal.Signals(number).name
        if number == signal.SIGINT and not self._stopping:
            self._say("stderr", f"{name}: interrupting all ranks; once more kills them")
            for link in self._links:
                link.writer.put(Kind.SIGNAL, str(int(number)))
            self._deadlines.stop = time.monotonic() + self._plan.grace_period
        else:
            self._say("stderr", f"{name}: terminating all ranks; once more kills them")
            self._stop(KILL_AFTER)

    def _check_deadlines(self, now: float) -> None:
        deadlines = self._deadlines
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
        if self._deadlines.kill_agents is None:
            self._deadlines.kill_agents = time.monotonic() + STOP_LIMIT
        for link in self._links:
            if not link.closed:
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
        """The failure that brought about the others."""
        if not self._failures:
            return None
        ends = [(each.code, self._output.tail(each.rank)) for each in self._failures]
        return self._failures[failure.cause(ends)]

    def _finish_console(self, wake: _Wake) -> None:
        # A slow reader, a pager perhaps, may take its time, but not with a job that was to be ended.
        deadline = float("inf") if self._signalled is None else time.monotonic() + _LAST_WORDS
        self._console.finish(
            lambda: bool(wake.received()) or self._console.lost or time.monotonic() > deadline
        )

    def _exit_code(self) -> int:
        if self._signalled is not None:
            return 128 + self._signalled
        first = self._cause()
        if first is not None:
            return failure.exit_code(first.code)
        return 0 if self._trouble is None else self._trouble[1]


def _start_local_agent() -> subprocess.Popen[bytes]:
    """An agent on this machine, in its own session: Ctrl-C reaches the launcher only, which decides."""
    return subprocess.Popen(
        [sys.executable, "-m", "horovod.runner.agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_agent_environment(dict(os.environ), Path(__file__).resolve().parents[2]),
        # Not the user's directory, whose files could shadow modules of the standard library.
        cwd="/",
        start_new_session=True,
        bufsize=0,
    )


def _agent_environment(environ: dict[str, str], root: Path) -> dict[str, str]:
    """The launcher's environment, changed so that the agent finds this very package from anywhere."""
    entries = [os.path.abspath(entry) for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    # Installed packages are found anyway, and must not come before the standard library.
    if root.name not in ("site-packages", "dist-packages"):
        entries.append(str(root))
    return {**environ, "PYTHONPATH": os.pathsep.join(entries)} if entries else environ


def run_job(plan: JobPlan, rendezvous: Rendezvous, console: Console | None = None) -> int:
    """Runs ``plan`` and returns its exit code."""
    return Job(plan, rendezvous, console).run()
