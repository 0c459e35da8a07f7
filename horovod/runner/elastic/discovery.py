"""Which hosts there are: what the user's script, or anything else that can be asked, says."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from horovod import _absent
from horovod.runner.elastic.keeper import WAITING, Keeper
from horovod.runner.plan.hosts import HostInfo, parse_discovered

_absent.without_names(__name__)

LIMIT_SECONDS = 30.0  # for one call of a script
_LARGEST_ANSWER = 1 << 20
_SHOWN = 2000  # characters of a script's stderr in a message


class HostDiscovery(ABC):
    """Anything that knows the hosts of a job. May be derived from."""

    @abstractmethod
    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """The hosts that can be used now, and how many processes each may run."""


class HostDiscoveryScript(HostDiscovery):
    """A command, run by a shell, that prints ``host`` or ``host:slots`` lines."""

    def __init__(self, discovery_script: str, slots: int | None = None) -> None:
        self.discovery_script = discovery_script
        self.slots = slots or 1

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Calls the script. RuntimeError if it fails."""
        call = ScriptCall(self.discovery_script, self.slots)
        while not call.ended:
            time.sleep(0.01)
            call.step(time.monotonic())
        return {host.hostname: host.slots for host in call.result()}


class FixedHosts(HostDiscovery):
    """Always the same hosts, until set() says otherwise."""

    def __init__(self, host_slots: Mapping[str, int]) -> None:
        self._host_slots = dict(host_slots)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        return dict(self._host_slots)

    def set(self, host_slots: Mapping[str, int]) -> None:
        self._host_slots = dict(host_slots)


class ScriptCall:
    """One call of a script, without waiting: step() from time to time, then result().

    `tell`: is called with the script's process group before it runs.
    """

    def __init__(self, command: str, slots: int, tell: Callable[[int], object] = int) -> None:
        self._command = command
        self._slots = slots
        self._deadline = time.monotonic() + LIMIT_SECONDS
        self._late = False
        self._pieces: dict[int, bytearray] = {}
        # A group of its own, so that what it starts can be ended with it.
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", WAITING, command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._pieces[stream.fileno()] = bytearray()
        self._open = set(self._pieces)
        tell(self._process.pid)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as begin:  # it was killed already
            begin.write(b"\n")

    @property
    def descriptors(self) -> list[int]:
        """Readable when there is something to do."""
        return sorted(self._open)

    @property
    def due(self) -> float:
        """When step() has to be called at the latest: a script that has ended may have left its pipes
        to something in the background.
        """
        return time.monotonic() + (0.2 if self._open else 0.05)

    @property
    def group(self) -> int:
        """The process group of all that it has started."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        return not self._open and self._process.returncode is not None

    def step(self, now: float) -> None:
        """Takes in what has been written; ends a script that takes too long."""
        over = self._process.poll() is not None
        for fd in list(self._open):
            try:
                while data := os.read(fd, 1 << 16):
                    if len(self._pieces[fd]) < _LARGEST_ANSWER:
                        self._pieces[fd] += data
                self._open.discard(fd)
            except BlockingIOError:
                continue
        if now >= self._deadline and not over and not self._late:
            self._late = True
            self.end()
        # Something in the background may hold the pipes; the answer is complete all the same.
        if over:
            self._open.clear()
        if self.ended:
            for stream in (self._process.stdout, self._process.stderr):
                assert stream is not None
                stream.close()

    def end(self) -> None:
        """Kills it."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def result(self) -> list[HostInfo]:
        """The hosts, in the order of the lines. RuntimeError says what is wrong."""
        out, err = (bytes(piece).decode(errors="replace") for piece in self._pieces.values())
        said = f"\n{err.strip()[-_SHOWN:]}" if err.strip() else ""
        if self._late:
            raise RuntimeError(
                f"Failed to execute discovery script: {self._command}: it took longer than "
                f"{LIMIT_SECONDS:g} s{said}"
            )
        code = self._process.returncode
        if code != 0:
            raise RuntimeError(
                f"Failed to execute discovery script: {self._command}. Exit code: {code}{said}"
            )
        try:
            return parse_discovered(out, self._slots, f"the output of {self._command}")
        except ValueError as error:
            raise RuntimeError(f"Failed to execute discovery script: {error}{said}") from None


class Polling:
    """A script that is asked again and again in an event loop, one call at a time."""

    def __init__(self, script: HostDiscoveryScript, pause: float) -> None:
        self._script = script
        self._pause = pause
        self._call: ScriptCall | None = None
        self._next: float | None = 0.0  # when to call it
        self._left: set[int] = set()  # process groups of scripts that have ended
        self._keeper = Keeper()

    @property
    def descriptors(self) -> Sequence[int]:
        return [] if self._call is None else self._call.descriptors

    @property
    def due(self) -> float | None:
        return self._next if self._call is None else self._call.due

    def turn(self, now: float) -> list[HostInfo] | RuntimeError | None:
        """What a call that has ended says; None if there is nothing new."""
        self._reap()
        if self._call is None:
            if self._next is not None and now >= self._next:
                try:
                    self._call = ScriptCall(
                        self._script.discovery_script,
                        self._script.slots,
                        lambda group: self._keeper.tell({*self._left, group}),
                    )
                except OSError as error:
                    self._next = now + self._pause
                    return RuntimeError(f"Failed to execute discovery script: {error.strerror}")
            return None
        self._call.step(now)
        if not self._call.ended:
            return None
        call, self._call = self._call, None
        self._left.add(call.group)
        self._next = now + self._pause
        try:
            return call.result()
        except RuntimeError as error:
            return error

    def _reap(self) -> None:
        """What scripts leave behind becomes this process's child when they end."""
        if not self._left:
            return
        for group in list(self._left):
            try:
                while os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG) is not None:
                    pass
            except ChildProcessError:
                self._left.discard(group)
        self._keeper.tell(self._left if self._call is None else {*self._left, self._call.group})

    def close(self) -> None:
        """Ends a call that is under way, and what others have left."""
        self._keeper.close()
        if self._call is not None:
            self._call.end()
            self._call.step(time.monotonic())


class Complaints:
    """When to say that a script fails: once at the beginning of a streak, then every minute."""

    EVERY = 60.0

    def __init__(self) -> None:
        self._said = -self.EVERY
        self._streak = False

    def worked(self) -> None:
        self._streak = False

    def failed(self, now: float) -> bool:
        """Whether to say it now."""
        if self._streak and now < self._said + self.EVERY:
            return False
        self._streak, self._said = True, now
        return True
