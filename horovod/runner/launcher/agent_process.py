"""The launcher's connection to an agent: a child process, on this machine or through ssh."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence

from horovod import __version__
from horovod.runner import ssh
from horovod.runner.agent.frames import Frame, FrameReader, FrameWriter
from horovod.runner.agent.greeting import GREETING
from horovod.runner.package_path import package_path

_GREETING_LIMIT = 1 << 20
_COMPLAINTS = 40  # lines of ssh's stderr that are kept
_CHUNK = 1 << 18


class Turns:
    """Permissions to connect to another machine, of which there are so many at a time."""

    def __init__(self, count: int) -> None:
        self.descriptor, self._source = os.pipe()
        os.set_blocking(self._source, False)
        self._out: set[AgentProcess] = set()  # those that have one, or wait for one
        os.write(self._source, b"\n" * count)

    def give(self, agent: AgentProcess) -> None:
        self._out.add(agent)

    def take_back(self, agent: AgentProcess) -> None:
        """It has connected, or never will."""
        if agent in self._out:
            self._out.remove(agent)
            os.write(self._source, b"\n")

    def close(self) -> None:
        """Those that are still waiting don't connect any more."""
        os.close(self.descriptor)
        os.close(self._source)


class AgentError(Exception):
    """The agent can't be worked with; the text says why and what to do."""


class AgentProcess:
    """One agent. Frames arrive by read(), complaints of ssh and agent by read_complaints()."""

    def __init__(self, host: str, process: subprocess.Popen[bytes], starting: set[int], remote: bool) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.host = host
        self.process = process
        self.remote = remote
        self.starting = starting  # ranks that have not been started
        self.writer = FrameWriter(process.stdin.fileno())
        self.greeted = False
        self.boot_id = ""  # of its machine, once it has greeted
        self.attempt = 1
        self.done = False  # it has said that nothing is left
        self.closed = False  # its end of the pipe is closed
        self.complaints: list[str] = []
        self.recorded = bytearray()  # packed parts of a timeline
        self._reader = FrameReader()
        self._greeting = bytearray()
        self._unfinished = b""
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)

    @property
    def reports(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    @property
    def stderr(self) -> int | None:
        """The descriptor of its complaints, while there is one."""
        stream = self.process.stderr
        return None if stream is None or stream.closed else stream.fileno()

    def read(self) -> Iterator[Frame] | None:
        """The frames that have arrived; None at the end of the stream. AgentError, ValueError."""
        try:
            data = os.read(self.reports, _CHUNK)
        except BlockingIOError:
            return iter(())
        if not data:
            return None
        if not self.greeted:
            data = self._greet(data)
        return self._reader.feed(data)

    def read_complaints(self) -> list[str]:
        """New lines of stderr. Before the greeting they are only kept, to explain a failure."""
        stream = self.process.stderr
        assert stream is not None
        try:
            data = os.read(stream.fileno(), _CHUNK)
        except BlockingIOError:
            return []
        if not data:
            stream.close()
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if not data and self._unfinished:
            lines.append(self._unfinished)
        texts = [line.decode(errors="replace").rstrip("\r") for line in lines]
        self.complaints = [*self.complaints, *texts][-_COMPLAINTS:]
        return texts if self.greeted else []

    def drain_complaints(self) -> None:
        """Takes in what a process that has ended wrote last."""
        while self.stderr is not None and self.read_complaints():
            pass

    def close(self) -> None:
        """Closes the pipes; the agent notices."""
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _greet(self, data: bytes) -> bytes:
        """Skips what a shell prints first, checks the agent's version, returns the rest."""
        self._greeting += data
        start = self._greeting.find(GREETING)
        end = self._greeting.find(b"\n", start) if start >= 0 else -1
        if end < 0:
            if len(self._greeting) > _GREETING_LIMIT:
                raise AgentError("the remote shell prints without end instead of starting the agent")
            return b""
        hello = json.loads(self._greeting[start + len(GREETING) : end])
        if hello["version"] != __version__:
            raise AgentError(
                f"it has horovod {hello['version']} in {hello['package']}, but here is {__version__}: "
                "install the same version on all hosts"
            )
        self.greeted = True
        self.boot_id = str(hello.get("boot_id", ""))
        return bytes(self._greeting[end + 1 :])


def start_local(host: str, starting: set[int]) -> AgentProcess:
    """An agent on this machine, in its own session: Ctrl-C is for the launcher to decide on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "horovod.runner.agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_agent_environment(dict(os.environ)),
        # Not the user's directory, whose files could shadow modules of the standard library.
        cwd="/",
        start_new_session=True,
        bufsize=0,
    )
    return AgentProcess(host, process, starting, remote=False)


def start_remote(
    host: str, starting: set[int], command: Sequence[str], turns: Turns, attempt: int
) -> AgentProcess:
    """An agent on another machine; ssh in its own session, for the same reason."""
    pause = 0.0 if attempt == 1 else random.uniform(0.5, 1.0) * 2 ** (attempt - 2)
    process = subprocess.Popen(
        ssh.start(command, turns.descriptor, pause),
        pass_fds=[turns.descriptor],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    agent = AgentProcess(host, process, starting, remote=True)
    agent.attempt = attempt
    agent.writer.put_line(json.dumps(package_path(os.environ.get("PYTHONPATH", ""))).encode())
    return agent


def _agent_environment(environ: dict[str, str]) -> dict[str, str]:
    entries: Sequence[str] = package_path(environ.get("PYTHONPATH", ""))
    return {**environ, "PYTHONPATH": os.pathsep.join(entries)} if entries else environ
