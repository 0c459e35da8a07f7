"""The agent: one process per host that starts the workers, carries their output and sees to their end.

``python -m horovod.runner.agent`` talks frames on stdin and stdout. It ends every process that the workers
started

- when all workers have ended,
- when it is told to,
- when its stdin closes: the launcher is gone, however it died,
- when the connection to the launcher's machine dies: then stdin might stay open for ever.

If the agent is killed itself, the kernel kills the workers, and the guardian, its parent, the rest. Before
they start, the hosts of a job find out how they reach each other: probe.py. Only the standard library is
imported on one machine, for a fast start.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

from horovod._bootstrap import descriptors
from horovod.runner.command import NOT_EXECUTABLE, NOT_FOUND, CommandError, resolve
from horovod.runner.frames import Frame, FrameReader, FrameWriter, Kind
from horovod.runner.guardian import under_guard
from horovod.runner.links import greeting
from horovod.runner.plan import HostPlan, Worker
from horovod.runner.processes import Sweep, prepare_worker, send, send_group
from horovod.runner.taskfiles import TaskFiles

if TYPE_CHECKING:
    from horovod.runner.probe import Probe

# Survivors read from /proc how a neighbour died, so a dead worker stays a zombie for a moment.
KEEP_ZOMBIE = 0.3
ORPHANED_KILL_AFTER = 0.5  # seconds from SIGTERM to SIGKILL when the launcher is gone
TICK = 0.03  # seconds between two looks at /proc while ending processes
DRAIN = 1.0  # seconds for the rest of the output once every process has ended
_CROWD = 4  # workers per processor above which they are let run only when all have been started
_CHUNK = 1 << 16
_PAUSE_ABOVE = 4 << 20  # unsent bytes at which workers have to wait with their output
_RESUME_BELOW = 1 << 20
_LAST_WORDS = 1 << 20  # bytes read after a worker's end before its end is reported


@dataclass
class _Running:
    """A started worker and the descriptors that its output comes from."""

    rank: int
    process: subprocess.Popen[bytes]
    streams: dict[int, Kind] = field(default_factory=dict)
    files: TaskFiles | None = None
    ended_at: float | None = None
    reaped: bool = False


class Agent:
    """The event loop. One thread: the kernel ties 'die with parent' to the thread that forked."""

    def __init__(self, control: int, reports: int, guardian: int) -> None:
        """``guardian`` is a descriptor that becomes readable when the guardian is gone."""
        self._control = control
        self._guardian = guardian
        self._reader = FrameReader()
        self._reports = FrameWriter(reports)
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, _Running] = {}  # by process id
        self._planned = False
        self._grace = Sweep.LEFTOVER_KILL_AFTER
        self._payload: list[bytes] = []
        self._probe: Probe | None = None
        self._watch: socket.socket | None = None
        self._paused = False
        self._sweep: Sweep | None = None
        self._swept_at: float | None = None
        self._done = False
        wake_read, wake_write = socket.socketpair()
        wake_read.setblocking(False)
        wake_write.setblocking(False)
        self._wake, self._wake_write = wake_read, wake_write

    def run(self) -> None:
        """Returns when nothing of the job is left on this host and the launcher knows it, or is gone."""
        self._install_signals()
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._selector.register(self._guardian, selectors.EVENT_READ)
        while not (self._done and self._reports.pending == 0):
            self._watch_reports()
            for key, _ in self._selector.select(self._patience()):
                if key.fd == self._control:
                    self._read_control()
                elif key.fileobj is self._wake:
                    self._drain_wake()
                elif key.fd == self._guardian:
                    self._selector.unregister(self._guardian)
                    self._launcher_gone()
                elif key.fileobj is self._watch:
                    self._launcher_gone()
                elif isinstance(key.data, _Running):
                    self._read_stream(key.data, key.fd)
            if self._probe is not None:
                self._probe.turn()
            self._notice_exits()
            self._advance()
            self._reports.flush()

    # -- what arrives -----------------------------------------------------------------------------------

    def _install_signals(self) -> None:
        def stop(number: int, frame: FrameType | None) -> None:
            self._stop(time.monotonic(), self._grace)

        def wake(number: int, frame: FrameType | None) -> None:
            pass  # the wake-up descriptor does the work

        # Functions, not SIG_IGN: ignored signals would stay ignored in the workers.
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, stop)
        # Slurm sends the latter two to every process, but they are meant for the workers.
        for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, wake)

    def _drain_wake(self) -> None:
        try:
            while self._wake.recv(4096):
                pass
        except BlockingIOError:
            return

    def _read_control(self) -> None:
        data = os.read(self._control, _CHUNK)
        if not data:
            self._selector.unregister(self._control)
            self._launcher_gone()
            return
        for frame in self._reader.feed(data):
            self._obey(frame)

    def _launcher_gone(self) -> None:
        """Nobody listens any more; or the guardian is gone, which would do what is still possible here."""
        if self._watch is not None:
            self._selector.unregister(self._watch)
            self._watch.close()
            self._watch = None
        self._reports.abandon()
        self._stop(time.monotonic(), ORPHANED_KILL_AFTER, everyone=True)

    def _obey(self, frame: Frame) -> None:
        if frame.kind is Kind.PLAN:
            self._close_probe()
            if self._planned:
                return  # told to stop before
            self._planned = True
            self._start(HostPlan.from_json(frame.payload))
        elif frame.kind is Kind.PAYLOAD:
            self._payload.append(frame.payload)
        elif frame.kind is Kind.PROBE:
            self._start_probe(frame.payload)
        elif frame.kind is Kind.PEERS:
            if self._probe is not None:
                peers = json.loads(frame.payload)
                self._probe.reach({host: [(a, p) for a, p in ends] for host, ends in peers.items()})
        elif frame.kind is Kind.SIGNAL:
            number = int(frame.payload)
            for pid, worker in self._workers.items():
                if worker.ended_at is None:
                    # The group, as a terminal would do; each worker leads one. But the signals without a
                    # meaning of their own end whoever does not know of them: a data loader, a shell.
                    (send_group if number == signal.SIGINT else send)(pid, number)
        elif frame.kind is Kind.STOP:
            self._stop(time.monotonic(), float(frame.payload))

    def _start_probe(self, request: bytes) -> None:
        from horovod.runner.probe import Probe, ProbeRequest

        kinds = {"listening": Kind.LISTENING, "reached": Kind.REACHED}

        def report(name: str, data: dict[str, object]) -> None:
            self._reports.put(kinds[name], json.dumps(data))

        def watch(sock: socket.socket) -> None:
            self._watch = sock
            # Nothing is ever sent: whatever happens there is the end.
            self._selector.register(sock, selectors.EVENT_READ)

        self._probe = Probe(ProbeRequest.from_json(request), report, watch)
        self._selector.register(self._probe, selectors.EVENT_READ)

    def _close_probe(self) -> None:
        if self._probe is not None:
            self._selector.unregister(self._probe)
            self._probe.close()
            self._probe = None

    def _start(self, plan: HostPlan) -> None:
        prepare = prepare_worker(os.getpid())
        try:
            descriptors.require((4 if plan.task else 2) * len(plan.workers), "the pipes of the ranks")
        except OSError as error:
            for worker in plan.workers:
                self._reports.put(Kind.REFUSED, f"{NOT_EXECUTABLE} {error.strerror}", worker.rank)
            return
        payload = b"".join(self._payload)
        self._payload.clear()
        self._grace = plan.term_grace
        # Each start would wait for a turn behind all workers that are importing already.
        crowd = len(plan.workers) > _CROWD * (os.cpu_count() or 1)
        for worker in plan.workers:
            files = TaskFiles(payload) if plan.task else None
            try:
                process = _spawn(plan, worker, prepare, files)
            except CommandError as error:
                self._reports.put(Kind.REFUSED, f"{error.exit_code} {error}", worker.rank)
                continue
            if crowd:
                send(process.pid, signal.SIGSTOP)
            running = _Running(worker.rank, process, files=files)
            for stream, kind in ((process.stdout, Kind.STDOUT), (process.stderr, Kind.STDERR)):
                assert stream is not None
                fd = stream.fileno()
                os.set_blocking(fd, False)
                running.streams[fd] = kind
                if not self._paused:
                    self._selector.register(fd, selectors.EVENT_READ, running)
            self._workers[process.pid] = running
            self._reports.put(Kind.STARTED, str(process.pid), worker.rank)
        if crowd:
            for pid in self._workers:
                send(pid, signal.SIGCONT)

    # -- output -----------------------------------------------------------------------------------------

    def _read_stream(self, worker: _Running, fd: int) -> int:
        """Passes on what a worker wrote; returns the number of bytes, 0 if there is nothing now."""
        if fd not in worker.streams:
            return 0
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return 0
        if data:
            self._reports.put(worker.streams[fd], data, worker.rank)
            return len(data)
        kind = worker.streams.pop(fd)
        if not self._paused:
            self._selector.unregister(fd)
        stream = worker.process.stdout if kind is Kind.STDOUT else worker.process.stderr
        assert stream is not None
        stream.close()
        return 0

    def _watch_reports(self) -> None:
        """Asks for room in the report pipe if needed; holds the workers back while too much is unsent."""
        registered = self._reports.fd in self._selector.get_map()
        if bool(self._reports.pending) != registered:
            if registered:
                self._selector.unregister(self._reports.fd)
            else:
                self._selector.register(self._reports.fd, selectors.EVENT_WRITE)
        if not self._paused and self._reports.pending > _PAUSE_ABOVE:
            self._paused = True
            for worker in self._workers.values():
                for fd in worker.streams:
                    self._selector.unregister(fd)
        elif self._paused and self._reports.pending < _RESUME_BELOW:
            self._paused = False
            for worker in self._workers.values():
                for fd in worker.streams:
                    self._selector.register(fd, selectors.EVENT_READ, worker)

    # -- ends -------------------------------------------------------------------------------------------

    def _notice_exits(self) -> None:
        now = time.monotonic()
        ended: list[tuple[int, _Running]] = []
        for pid, worker in self._workers.items():
            if worker.ended_at is not None:
                continue
            status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is not None:
                worker.ended_at = now
                code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
                ended.append((code, worker))
        # Seen together: one that a signal ended is rather the cause, one that exited rather the consequence.
        for code, worker in sorted(ended, key=lambda item: item[0] >= 0):
            self._read_last_words(worker)
            if worker.files is not None:
                self._reports.put_pieces(Kind.RESULT, worker.files.take_result(), worker.rank)
            worker.process.returncode = code  # Popen must not wait itself
            self._reports.put(Kind.EXIT, str(code), worker.rank)
        self._reap(now)

    def _read_last_words(self, worker: _Running) -> None:
        for fd in list(worker.streams):
            total = 0
            # A descendant may hold the pipe and write for ever.
            while total < _LAST_WORDS and (count := self._read_stream(worker, fd)):
                total += count

    def _reap(self, now: float) -> None:
        everyone_ended = all(worker.ended_at is not None for worker in self._workers.values())
        for pid, worker in self._workers.items():
            if worker.ended_at is None or worker.reaped:
                continue
            if everyone_ended or now >= worker.ended_at + KEEP_ZOMBIE:
                os.waitpid(pid, 0)  # it is a zombie: returns at once
                worker.reaped = True
        self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Buries adopted descendants. A worker that must stay a zombie may hide them until it is buried."""
        while True:
            try:
                status = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if status is None:
                return
            worker = self._workers.get(status.si_pid)
            if worker is not None and not worker.reaped:
                return
            os.waitpid(status.si_pid, 0)

    def _stop(self, now: float, kill_after: float, everyone: bool = False) -> None:
        """SIGTERM for the workers and what is in their groups, or for everyone; SIGKILL after a while."""
        self._planned = True  # whatever has not come by now is not wanted any more
        self._close_probe()
        if self._sweep is None:
            self._sweep = Sweep(now, kill_after, groups=() if everyone else self._workers)
        else:
            self._sweep.hurry(now + kill_after)

    def _advance(self) -> None:
        """From 'all workers have ended' or 'stop' over 'no process is left' to 'everything is reported'."""
        now = time.monotonic()
        if self._done or not self._planned:
            return
        ended = all(worker.ended_at is not None for worker in self._workers.values())
        if self._sweep is None:
            if not ended:
                return
            self._stop(now, Sweep.LEFTOVER_KILL_AFTER, everyone=True)
        assert self._sweep is not None
        if self._swept_at is None:
            if self._nobody_left():
                self._sweep.left = []
            elif not self._sweep.step(now):
                return
            self._swept_at = now
        waiting = any(worker.streams for worker in self._workers.values())
        # Someone outside the job may hold a pipe; whatever was written before has arrived long since.
        if waiting and now < self._swept_at + DRAIN and not self._reports.broken:
            return
        self._reports.put(Kind.DONE, " ".join(map(str, self._sweep.left)))
        self._done = True

    def _nobody_left(self) -> bool:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def _patience(self) -> float | None:
        """Seconds until something is due without an event."""
        if self._done:
            return None  # until the launcher reads or goes away
        if self._sweep is not None:
            return TICK
        if self._probe is not None:
            return self._probe.next_wait(time.monotonic())
        due = [
            worker.ended_at + KEEP_ZOMBIE
            for worker in self._workers.values()
            if worker.ended_at is not None and not worker.reaped
        ]
        return max(0.0, min(due) - time.monotonic()) if due else None


def _spawn(
    plan: HostPlan, worker: Worker, prepare: Callable[[], None], files: TaskFiles | None
) -> subprocess.Popen[bytes]:
    """Starts a worker. CommandError says why it can't be."""
    env = {**plan.env, **worker.env}
    if not os.path.isdir(plan.directory):
        raise CommandError(f"the working directory {plan.directory} does not exist there", NOT_EXECUTABLE)
    command = resolve(plan.command, plan.directory, env.get("PATH")) if plan.resolve else plan.command
    if files is not None:
        env.update(files.environment())
    try:
        return subprocess.Popen(
            command,
            cwd=plan.directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=prepare,
            bufsize=0,
            pass_fds=() if files is None else files.descriptors(),
        )
    except OSError as error:
        code = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
        raise CommandError(f"{command[0]}: {error.strerror}", code) from None


def main() -> None:
    """Runs the agent on this process's stdin and stdout."""
    guardian = under_guard()
    descriptors.raise_limit()
    # Private copies, so that a stray print or a child cannot disturb the frames.
    control, reports = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    os.write(reports, greeting())
    Agent(control, reports, guardian).run()


if __name__ == "__main__":
    main()
    sys.exit(0)
