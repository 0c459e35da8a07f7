"""An agent whose workers come and go."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from horovod.runner.agent.agent import SAME_SIGNAL
from horovod.runner.agent.frames import Frame, Kind
from horovod.runner.launcher.agent_process import AgentProcess, start_local
from horovod.runner.plan.job_plan import HostPlan

PROGRAM = Path(__file__).with_name("program_leftovers.py")
PATIENCE = 60.0


class Staying:
    """An agent, and what it has said."""

    def __init__(
        self, mode: str, preemption_grace: float = 30.0, agent: AgentProcess | None = None, **more: Any
    ) -> None:
        self.agent = agent or start_local("localhost", set())
        self.frames: list[Frame] = []
        self.over = False
        plan = HostPlan(
            host="localhost",
            directory="/",
            env=dict(os.environ),
            workers=[],
            stays=True,
            term_grace=1.0,
            preemption_grace=preemption_grace,
            **{"command": [sys.executable, str(PROGRAM), mode], **more},
        )
        self.put(Kind.PLAN, plan.to_json())

    def put(self, kind: Kind, payload: str, worker: int = -1) -> None:
        self.agent.writer.put(kind, payload, worker)
        self.agent.writer.flush()
        assert self.agent.writer.pending == 0

    def start(self, *workers: int) -> None:
        plans = [{"rank": worker, "env": {"_HOROVOD_WORKER": str(worker)}} for worker in workers]
        self.put(Kind.START, json.dumps(plans))

    def turn(self) -> None:
        if not self.over and select.select([self.agent.reports], [], [], 0.05)[0]:
            frames = self.agent.read()
            self.over = frames is None
            self.frames += frames or ()

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.frames}"
            self.turn()

    def said(self, kind: Kind, worker: int = -1) -> list[bytes]:
        return [frame.payload for frame in self.frames if frame.kind is kind and frame.rank == worker]

    def pid(self) -> int:
        """Of the agent itself, behind the guardian."""
        command = ["pgrep", "-P", str(self.agent.process.pid)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])

    def started(self, worker: int) -> int:
        """The process of a worker."""
        self.until(lambda: bool(self.said(Kind.STARTED, worker)), f"the start of {worker}")
        return int(self.said(Kind.STARTED, worker)[0])

    def pids(self, worker: int) -> list[int]:
        """Of a worker, and of the two that it has started."""
        self.until(lambda: b"\n" in b"".join(self.said(Kind.STDOUT, worker)), f"the words of {worker}")
        return [int(word) for word in b"".join(self.said(Kind.STDOUT, worker)).split()]


@pytest.fixture
def staying() -> Iterator[Callable[..., Staying]]:
    with contextlib.ExitStack() as stack:

        def make(mode: str, **more: Any) -> Staying:
            made = Staying(mode, **more)

            def end() -> None:
                made.agent.close()
                made.agent.process.wait(PATIENCE)

            stack.callback(end)
            return made

        yield make


def alive(pid: int) -> bool:
    """Whether the first thread of a process is."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def late_agent() -> AgentProcess:
    command = [sys.executable, str(PROGRAM.with_name("program_late_agent.py"))]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
    )
    return AgentProcess("localhost", process, set(), remote=False)


def test_one_worker_ends_with_all_that_it_has_started(staying: Callable[..., Staying]) -> None:
    agent = staying("stays")
    agent.start(7, 8)
    first, second = agent.pids(7), agent.pids(8)
    agent.put(Kind.END, "5", 7)
    agent.until(lambda: bool(agent.said(Kind.EXIT, 7)), "the end of 7")
    assert agent.said(Kind.EXIT, 7) == [str(-signal.SIGTERM).encode()]
    agent.until(lambda: not any(map(alive, first)), "all of 7")
    assert all(map(alive, second)) and not agent.said(Kind.EXIT, 8)
    # A number that is not there, or not any more
    agent.put(Kind.END, "0", 7)
    agent.put(Kind.END, "0", 1000)
    agent.start(9)
    third = agent.pids(9)
    assert all(map(alive, second))
    agent.put(Kind.STOP, "5")
    agent.until(lambda: agent.over, "the agent's own end")
    assert not any(map(alive, second + third))
    assert agent.said(Kind.DONE) == [b""]


def test_a_process_lives_as_long_as_any_of_its_threads(staying: Callable[..., Staying]) -> None:
    """The first one is a zombie, and no pipe is open: it is not gone for all that."""
    words = (
        "import ctypes, os, signal, threading, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "threading.Thread(target=time.sleep, args=(1000,)).start(); os.close(1); os.close(2); "
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    agent = staying("", command=[sys.executable, "-c", words])
    agent.start(1)
    pid = agent.started(1)
    agent.until(lambda: not alive(pid), "the end of its first thread")
    assert not agent.said(Kind.EXIT, 1)
    agent.put(Kind.STOP, "0.5")
    agent.until(lambda: agent.over, "the end")
    assert agent.said(Kind.EXIT, 1) == [str(-signal.SIGKILL).encode()]
    assert agent.said(Kind.DONE) == [b""] and not os.path.exists(f"/proc/{pid}")


def test_an_end_that_comes_between_two_looks_is_told(staying: Callable[..., Staying]) -> None:
    words = "import os, time; os.close(1); os.close(2); time.sleep(1000)"
    agent = staying("", agent=late_agent(), command=[sys.executable, "-c", words])
    agent.start(1, 2)
    pids = [agent.started(worker) for worker in (1, 2)]
    agent.until(lambda: not any(os.path.exists(f"/proc/{pid}/fd/1") for pid in pids), "closed pipes")
    agent.put(Kind.STOP, "5")
    agent.until(lambda: agent.over, "the end")
    assert [agent.said(Kind.EXIT, worker) for worker in (1, 2)] == [[b"-15"], [b"-15"]]


def test_the_launchers_own_doing_is_never_told_as_a_failure(staying: Callable[..., Staying]) -> None:
    """Even if the worker ends between two looks."""
    words = (
        "import os, signal, struct, time; "
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2), os.kill(os.getpid(), signal.SIGKILL))); "
        "recent = int(os.environ['_HOROVOD_RECENT']); os.pwrite(recent, struct.pack('=Q', 1), 0); "
        "entry = struct.pack('=QQQII96s', 1, 2, 4, 1, 4, b'loss'); os.pwrite(recent, entry, len(entry)); "
        "print('ready', flush=True); time.sleep(1000)"
    )
    agent = staying("", agent=late_agent(), command=[sys.executable, "-c", words])
    agent.start(1, 2)
    for worker in (1, 2):
        agent.until(partial(agent.said, Kind.STDOUT, worker), f"the words of {worker}")
    agent.put(Kind.END, "5", 1)
    agent.until(lambda: bool(agent.said(Kind.EXIT, 1)), "the end of 1")
    assert not agent.said(Kind.STDERR, 1)
    os.kill(agent.started(2), signal.SIGKILL)
    agent.until(lambda: bool(agent.said(Kind.EXIT, 2)), "the end of 2")
    assert b"before signal 9, the latest first: loss" in b"".join(agent.said(Kind.STDERR, 2))


def test_sigkill_follows_in_time(staying: Callable[..., Staying]) -> None:
    agent = staying("stubborn")
    agent.start(1)
    pids = agent.pids(1)
    agent.put(Kind.END, "0.5", 1)
    agent.until(lambda: bool(agent.said(Kind.EXIT, 1)), "the end")
    assert agent.said(Kind.EXIT, 1) == [str(-signal.SIGKILL).encode()]
    agent.until(lambda: not any(map(alive, pids)), "all of it")


def test_what_a_worker_leaves_behind_is_ended_and_the_agent_stays(staying: Callable[..., Staying]) -> None:
    agent = staying("leaves")
    agent.start(1)
    first = agent.pids(1)
    agent.until(lambda: agent.said(Kind.EXIT, 1) == [b"0"], "its end")
    agent.until(lambda: not any(map(alive, first)), "what it left")
    agent.start(2)
    second = agent.pids(2)
    agent.until(lambda: not any(map(alive, second)), "the same again")
    assert not agent.said(Kind.DONE)


def test_sigterm_is_a_warning(staying: Callable[..., Staying]) -> None:
    agent = staying("stays")
    agent.start(1)
    pids = agent.pids(1)
    os.kill(agent.agent.process.pid, signal.SIGTERM)
    agent.until(lambda: bool(agent.said(Kind.LEAVING)), "the warning")
    assert json.loads(agent.said(Kind.LEAVING)[0]) == {"seconds": 30.0, "why": "SIGTERM"}
    for pid in (agent.agent.process.pid, agent.pid()):  # for every process: the same one
        os.kill(pid, signal.SIGTERM)
    time.sleep(SAME_SIGNAL)
    assert all(map(alive, pids)) and not agent.over
    os.kill(agent.agent.process.pid, signal.SIGTERM)
    agent.until(lambda: agent.over, "the end after the second one")
    assert not any(map(alive, pids))


def test_after_the_warning_the_time_runs_out(staying: Callable[..., Staying]) -> None:
    agent = staying("stays", preemption_grace=0.5)
    agent.start(1)
    pids = agent.pids(1)
    os.kill(agent.agent.process.pid, signal.SIGTERM)
    agent.until(lambda: agent.over, "the end")
    assert not any(map(alive, pids))


def test_a_start_that_is_refused_leaves_no_files(staying: Callable[..., Staying]) -> None:
    agent = staying("", command=["/no/such/command"], task=True)
    agent.start(1, 2)
    agent.until(lambda: bool(agent.said(Kind.REFUSED, 2)), "the refusal")
    links = [os.readlink(path) for path in Path(f"/proc/{agent.pid()}/fd").iterdir()]
    assert not [link for link in links if "memfd" in link]


def test_an_agent_that_stays_does_not_spin(staying: Callable[..., Staying]) -> None:
    agent = staying("leaves")
    agent.start(1)
    agent.until(lambda: agent.said(Kind.EXIT, 1) == [b"0"], "its end")
    pid = agent.pid()

    def ticks() -> int:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        return int(words[11]) + int(words[12])

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:  # until what was left is gone and the pipes are closed
        before = ticks()
        time.sleep(1.0)
        if ticks() - before <= 1:
            return
    raise AssertionError("it never sleeps")
