"""SIGTERM to a worker, as a warning and as the end that the launcher has announced."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# Told "ending" when a line comes. The main thread is in a call of C that no signal interrupts: a
# mutex that is locked twice.
WORKER = """
import ctypes, signal, sys, threading, time
from types import SimpleNamespace
from horovod.common import preemption

def sent(message):
    print(message["type"], flush=True)

def listen():
    for _ in sys.stdin:
        preemption.job_is_ending()
        print("told", flush=True)

{before}
preemption.install(SimpleNamespace(connected=True, send=sent), 30.0)
threading.Thread(target=listen, daemon=True).start()
print("ready", flush=True)
{during}
"""
STUCK = "lock = ctypes.CDLL(None).pthread_mutex_lock; mutex = bytes(64); lock(mutex); lock(mutex)"
OWN = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"


@contextmanager
def worker(before: str = "", during: str = STUCK) -> Iterator[subprocess.Popen[str]]:
    code = WORKER.format(before=before, during=during)
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as process:
        try:
            said(process, "ready")
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("ending\n")
    process.stdin.flush()


@pytest.mark.timeout(60)
def test_a_worker_that_is_ended_ends_also_while_python_runs_no_handlers() -> None:
    with worker() as process:
        tell(process)
        said(process, "told")
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM


@pytest.mark.timeout(60)
def test_a_warning_before_the_end() -> None:
    """The signal may be faster than the message."""
    with worker(during="threading.Event().wait()") as process:
        process.terminate()
        said(process, "leaving")
        tell(process)
        assert process.wait(20) == -signal.SIGTERM


@pytest.mark.timeout(60)
def test_the_same_warning_comes_from_several_sides() -> None:
    """A second one, a second later, ends the worker."""
    with worker(during="while True: time.sleep(0.1)") as process:
        process.terminate()
        said(process, "leaving")
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.2)
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM


@pytest.mark.timeout(60)
def test_the_users_handler_stays() -> None:
    with worker(before=OWN, during="threading.Event().wait()") as process:
        tell(process)
        said(process, "told")
        process.terminate()
        assert process.wait(20) == 7
