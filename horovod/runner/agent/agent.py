"""The agent: one process per host that starts the workers, carries their output and sees to their
end.

``python -m horovod.runner.agent`` talks frames on stdin and stdout. It ends every process that the
workers started

- when all workers have ended, unless more may come (an elastic job),
- when it is told to,
- when its stdin closes: the launcher is gone, however it died,
- when the connection to the launcher's machine dies: then stdin might stay open for ever.

In an elastic job it also ends single workers, with what they have started, and a SIGTERM is at
first a warning that the host will be taken away, which the launcher is told.

If the agent is killed itself, the kernel kills the workers, and the guardian, its parent, the rest.
Before they start, the hosts of a job find out how they reach each other: host_survey. Only the
standard library is imported on one machine, for a fast start.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

from horovod._net import descriptors
from horovod.runner.agent.frames import Frame, FrameReader, FrameWriter, Kind
from horovod.runner.agent.recent import RecentFile
from horovod.runner.agent.timeline_parts import VARIABLE, PartsDirectory, packed
from horovod.runner.agent.worker_process import WorkerProcess, start
from horovod.runner.payload import WorkerFiles
from horovod.runner.plan.command import NOT_EXECUTABLE, CommandError
from horovod.runner.plan.job_plan import HostPlan, Worker
from horovod.runner.processes import LONGEST_WAIT, Sweep, has_variable, prepare_worker, send, send_group
from horovod.runner.processors import thread_variables

if TYPE_CHECKING:
    from horovod.runner.host_survey.participant import SurveyParticipant

# Survivors read from /proc how a neighbour died, so a dead worker stays a zombie for a moment.
KEEP_ZOMBIE = 0.3
ORPHANED_KILL_AFTER = 0.5  # seconds from SIGTERM to SIGKILL when the launcher is gone
TICK = 0.03  # seconds between two looks at /proc while ending processes
# Seconds in which SIGTERM counts once: Slurm sends it to the guardian, too, which passes it on
SAME_SIGNAL = 1.0
DRAIN = 1.0  # seconds for the rest of the output once every process has ended
_CROWD = 4  # workers per processor above which they are let run only when all have been started
_CHUNK = 1 << 16
_PAUSE_ABOVE = 4 << 20  # unsent bytes at which workers have to wait with their output
_RESUME_BELOW = 1 << 20
_WORKER = "_HOROVOD_WORKER"  # the variable by which what a worker has started is recognised
_LAST_WORDS = 1 << 20  # bytes read after a worker's end before its end is reported


class Agent:
    """The event loop. One thread: the kernel ties 'die with parent' to the thread that forked."""

    def __init__(self, control: int, reports: int, guardian: int) -> None:
        """``guardian`` is a descriptor that becomes readable when the guardian is gone."""
        self._control = control
        self._guardian = guardian
        self._reader = FrameReader()
        self._reports = FrameWriter(reports)
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, WorkerProcess] = {}  # by process id
        self._planned = False
        self._plan: HostPlan | None = None  # if it stays
        self._ending: dict[int, Sweep] = {}  # by process id: workers that end while the others go on
        self._warned_at: float | None = None  # by a SIGTERM
        self._leaves_at: float | None = None  # when the job ends here although nobody has said so
        self._grace = Sweep.LEFTOVER_KILL_AFTER
        self._payload: list[bytes] = []
        self._parts: PartsDirectory | None = None
        self._survey: SurveyParticipant | None = None
        self._survey_until: float | None = None  # others still try to reach this host until then
        self._keepalive: socket.socket | None = None
        self._paused = False
        self._sweep: Sweep | None = None
        self._swept_at: float | None = None
        self._done = False
        wake_read, wake_write = socket.socketpair()
        wake_read.setblocking(False)
        wake_write.setblocking(False)
        self._wake, self._wake_write = wake_read, wake_write

    def run(self) -> None:
        """Returns when nothing of the job is left here and the launcher knows it, or is gone."""
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
                elif key.fileobj is self._keepalive:
                    self._launcher_gone()
                elif isinstance(key.data, WorkerProcess):
                    self._read_stream(key.data, key.fd)
            if self._survey is not None:
                self._survey.turn()
            self._notice_exits()
            self._advance()
            self._reports.flush()

    # -- what arrives --

    def _install_signals(self) -> None:
        def stop(number: int, frame: FrameType | None) -> None:
            now = time.monotonic()
            if number == signal.SIGTERM and self._plan is not None:
                if self._warned_at is None:
                    self._warned_at = now
                if now < self._warned_at + SAME_SIGNAL:
                    return
            self._stop(now, self._grace)

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
        """Nobody listens any more, or the guardian is gone: the job ends on this host."""
        if self._keepalive is not None:
            self._selector.unregister(self._keepalive)
            self._keepalive.close()
            self._keepalive = None
        self._reports.abandon()
        self._stop(time.monotonic(), ORPHANED_KILL_AFTER, everyone=True)

    def _obey(self, frame: Frame) -> None:
        if frame.kind is Kind.PLAN:
            self._close_survey()
            if self._planned:
                return  # told to stop before
            self._planned = True
            plan = HostPlan.from_json(frame.payload)
            self._plan = plan if plan.stays else None
            self._start(plan, plan.workers)
        elif frame.kind is Kind.START:
            if self._plan is not None and self._sweep is None:
                self._start(self._plan, [Worker(**worker) for worker in json.loads(frame.payload)])
        elif frame.kind is Kind.END:
            self._end_worker(frame.rank, float(frame.payload))
        elif frame.kind is Kind.PAYLOAD:
            self._payload.append(frame.payload)
        elif frame.kind is Kind.SURVEY:
            self._start_survey(frame.payload)
        elif frame.kind is Kind.PEERS:
            if self._survey is not None:
                peers = json.loads(frame.payload)
                self._survey.reach({host: [(a, p) for a, p in ends] for host, ends in peers.items()})
        elif frame.kind is Kind.SIGNAL:
            number = int(frame.payload)
            for pid, worker in self._workers.items():
                if worker.ended_at is None:
                    # The group, as a terminal would do; each worker leads one. But SIGUSR1 and
                    # SIGUSR2 end a process that does not handle them, such as a data loader or a
                    # shell.
                    (send_group if number == signal.SIGINT else send)(pid, number)
        elif frame.kind is Kind.STOP:
            self._stop(time.monotonic(), float(frame.payload))

    def _start_survey(self, text: bytes) -> None:
        from horovod.runner.host_survey.participant import SurveyParticipant, SurveyRequest

        kinds = {"listening": Kind.LISTENING, "reached": Kind.REACHED}
        self._close_survey()  # of hosts that were there before this one
        request = SurveyRequest.from_json(text)

        def report(name: str, data: dict[str, object]) -> None:
            self._reports.put(kinds[name], json.dumps(data))
            if name == "reached" and self._planned:
                self._survey_until = time.monotonic() + request.seconds

        def keep(sock: socket.socket) -> None:
            self._keepalive = sock
            # Nothing is ever sent: whatever happens there is the end.
            self._selector.register(sock, selectors.EVENT_READ)

        self._survey = SurveyParticipant(request, report, keep if self._keepalive is None else None)
        self._selector.register(self._survey, selectors.EVENT_READ)

    def _close_survey(self) -> None:
        if self._survey is not None:
            self._selector.unregister(self._survey)
            self._survey.close()
            self._survey = None
        self._survey_until = None

    def _start(self, plan: HostPlan, workers: Sequence[Worker]) -> None:
        prepare = prepare_worker(os.getpid())
        try:
            descriptors.require((5 if plan.task else 3) * len(workers), "the pipes of the ranks")
        except OSError as error:
            for worker in workers:
                self._reports.put(Kind.REFUSED, f"{NOT_EXECUTABLE} {error.strerror}", worker.rank)
            return
        payload = b"".join(self._payload)
        self._payload = [payload] if plan.stays else []
        self._grace = plan.term_grace
        if plan.timeline and self._parts is None:
            self._parts = PartsDirectory(plan.timeline)
            plan.env[VARIABLE] = self._parts.timeline
        if plan.share_threads:
            plan.env.update(thread_variables(plan.env, len(workers)))
        # Each start would wait for a turn behind all workers that are importing already.
        crowd = len(workers) > _CROWD * (os.cpu_count() or 1)
        for worker in workers:
            files = WorkerFiles(payload) if plan.task else None
            recent = RecentFile()
            try:
                process = start(plan, worker, prepare, recent, files)
            except CommandError as error:
                recent.close()
                self._reports.put(Kind.REFUSED, f"{error.exit_code} {error}", worker.rank)
                if files is not None:
                    files.close()
                continue
            if crowd:
                send(process.pid, signal.SIGSTOP)
            running = WorkerProcess(worker.rank, process, recent, files=files)
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

    # -- output --

    def _read_stream(self, worker: WorkerProcess, fd: int) -> int:
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
        self._close_stream(worker, fd)
        return 0

    def _close_stream(self, worker: WorkerProcess, fd: int) -> None:
        kind = worker.streams.pop(fd, None)
        if kind is None:
            return
        if not self._paused:
            self._selector.unregister(fd)
        stream = worker.process.stdout if kind is Kind.STDOUT else worker.process.stderr
        assert stream is not None
        stream.close()

    def _watch_reports(self) -> None:
        """Asks for room in the report pipe; holds the workers back while too much is unsent."""
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

    # -- ends --

    def _notice_exits(self) -> None:
        now = time.monotonic()
        ended: list[tuple[int, WorkerProcess]] = []
        for pid, worker in self._workers.items():
            if worker.ended_at is not None:
                continue
            status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is not None:
                worker.ended_at = now
                code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
                ended.append((code, worker))
        # Of several that ended at once, one that a signal ended is more likely the cause.
        for code, worker in sorted(ended, key=lambda item: item[0] >= 0):
            self._read_last_words(worker)
            self._tell_recent(worker, code)
            if worker.files is not None:
                self._reports.put_pieces(Kind.RESULT, worker.files.take_result(), worker.rank)
            worker.process.returncode = code  # Popen must not wait itself
            self._reports.put(Kind.EXIT, str(code), worker.rank)
            if self._plan is not None and worker.process.pid not in self._ending:
                self._sweep_worker(worker, now, Sweep.LEFTOVER_KILL_AFTER, ())
        self._reap(now)
        if self._plan is not None:
            self._end_some(now)

    def _read_last_words(self, worker: WorkerProcess) -> None:
        for fd in list(worker.streams):
            total = 0
            # A descendant may hold the pipe and write for ever.
            while total < _LAST_WORDS and (count := self._read_stream(worker, fd)):
                total += count

    def _tell_recent(self, worker: WorkerProcess, code: int) -> None:
        """Speaks for a worker that a signal has ended before it could tell its last operations."""
        last = worker.recent.take(time.monotonic_ns())
        if last and code < 0 and self._sweep is None and worker.process.pid not in self._ending:
            text = f"The last operations here before signal {-code}, the latest first: {last}.\n"
            self._reports.put(Kind.STDERR, text, worker.rank)

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
        """Reaps adopted descendants.

        A worker that must stay a zombie may hide them until it is reaped.
        """
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

    def _end_worker(self, number: int, kill_after: float) -> None:
        """SIGTERM for one worker and its group, SIGKILL after a while for all that it has started."""
        now = time.monotonic()
        for pid, worker in self._workers.items():
            if worker.rank != number:
                continue
            if pid in self._ending:
                self._ending[pid].hurry(now + kill_after)
            else:
                self._sweep_worker(worker, now, kill_after, (pid,))

    def _sweep_worker(
        self, worker: WorkerProcess, now: float, kill_after: float, groups: Sequence[int]
    ) -> None:
        leader, number = worker.process.pid, str(worker.rank)

        def belongs(pid: int, group: int) -> bool:
            return group == leader or has_variable(pid, _WORKER, number)

        self._ending[leader] = Sweep(now, kill_after, groups=groups, only=belongs)

    def _end_some(self, now: float) -> None:
        """Goes on with workers that end while others don't, and forgets those of which nothing is
        left.
        """
        for pid, sweep in list(self._ending.items()):
            worker = self._workers.get(pid)
            if sweep.step(now) and (worker is None or worker.ended_at is not None or sweep.left):
                del self._ending[pid]  # not of one that has ended just now, which has to be told
        for pid, worker in list(self._workers.items()):
            if pid in self._ending or not worker.reaped or worker.ended_at is None:
                continue
            # Someone outside the job may hold a pipe.
            if worker.streams and now < worker.ended_at + DRAIN:
                continue
            for fd in list(worker.streams):
                self._read_stream(worker, fd)
                self._close_stream(worker, fd)
            del self._workers[pid]

    def _notice_warning(self, now: float) -> None:
        """SIGTERM to an agent that stays: the launcher takes this host out of the job in order."""
        assert self._plan is not None
        if self._warned_at is not None and self._leaves_at is None:
            seconds = self._plan.preemption_grace
            self._leaves_at = now + seconds
            self._reports.put(Kind.LEAVING, json.dumps({"seconds": seconds, "why": "SIGTERM"}))
        if self._leaves_at is not None and now >= self._leaves_at and self._sweep is None:
            self._stop(now, self._grace)

    def _stop(self, now: float, kill_after: float, everyone: bool = False) -> None:
        """SIGTERM for the workers and their groups, or for everyone; SIGKILL after a while."""
        self._planned = True  # whatever has not come by now is not wanted any more
        self._close_survey()
        if self._sweep is None:
            self._sweep = Sweep(now, kill_after, groups=() if everyone else self._workers)
        else:
            self._sweep.hurry(now + kill_after)

    def _advance(self) -> None:
        """From 'stop', or the end of all workers, to 'no process is left' and 'all is reported'."""
        now = time.monotonic()
        if self._survey_until is not None and now >= self._survey_until:
            self._close_survey()
        if self._done or not self._planned:
            return
        if self._plan is not None:
            self._notice_warning(now)
        ended = all(worker.ended_at is not None for worker in self._workers.values())
        if self._sweep is None:
            if not ended or self._plan is not None:
                return
            self._stop(now, Sweep.LEFTOVER_KILL_AFTER, everyone=True)
        assert self._sweep is not None
        if self._swept_at is None:
            if self._nobody_left():
                self._sweep.left = []
            elif not self._sweep.step(now):
                return
            if not ended and not self._sweep.left:
                return  # one has ended just now, which has to be told
            self._swept_at = now
        waiting = any(worker.streams for worker in self._workers.values())
        # Someone outside the job may hold a pipe; whatever was written before has arrived long
        # since.
        if waiting and now < self._swept_at + DRAIN and not self._reports.broken:
            return
        if self._parts is not None:
            self._reports.put_pieces(Kind.TIMELINE, packed(self._parts.parts()))
            self._parts.close()
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
        if self._sweep is not None or self._ending:
            return TICK
        now = time.monotonic()
        due = [at for at in (self._leaves_at, self._survey_until) if at is not None]
        if self._survey is not None and (wait := self._survey.next_wait(now)) is not None:
            due.append(now + wait)
        due += [
            worker.ended_at + (DRAIN if worker.reaped else KEEP_ZOMBIE)
            for worker in self._workers.values()
            if worker.ended_at is not None and (self._plan is not None or not worker.reaped)
        ]
        return min(max(0.0, min(due) - now), LONGEST_WAIT) if due else None
