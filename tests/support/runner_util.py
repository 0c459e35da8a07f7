"""Runs the real horovodrun and finds every process that it has started, wherever it has gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
from util_paths import ROOT

MARKER = "HVD_TEST_MARKER"
ENOUGH = 50.0  # seconds for any job, also on a busy machine; what must not be waited for takes longer


def family(marker: str) -> list[psutil.Process]:
    """Living processes with a marker."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER) == marker and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


class Launcher:
    """A running horovodrun. All its processes inherit a marker in their environment."""

    def __init__(
        self,
        *argv: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        terminal: int | None = None,
        preexec: Callable[[], None] | None = None,
    ) -> None:
        """``terminal``, if given, becomes the controlling terminal and all three streams."""

        def prepare() -> None:
            # The tests may run under nohup, or behind a script's "&".
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            if terminal is not None:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if preexec is not None:
                preexec()

        self.marker = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, "-m", "horovod.runner.launch", *argv],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), MARKER: self.marker, **(env or {})},
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=subprocess.PIPE if terminal is None else terminal,
            stderr=subprocess.PIPE if terminal is None else terminal,
            start_new_session=terminal is not None,
            preexec_fn=prepare,
        )

    def wait_for(self, count: int, text: str) -> None:
        """Reads stdout until so many lines with ``text`` have come."""
        assert self.process.stdout is not None
        while count:
            line = self.process.stdout.readline().decode(errors="replace")
            assert line, f"it ended without {text!r}"
            count -= text in line

    def finish(self, seconds: float = ENOUGH) -> subprocess.CompletedProcess[str]:
        """Waits for the end; the output is decoded with undecodable bytes replaced."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return subprocess.CompletedProcess(
            self.process.args,
            self.process.returncode,
            out.decode(errors="replace"),
            err.decode(errors="replace"),
        )

    def finish_all(
        self, seconds: float, details: Callable[[], object] = str
    ) -> subprocess.CompletedProcess[str]:
        """finish() in time, or an AssertionError with the output and `details`; nothing may be left."""
        try:
            result = self.finish(seconds)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(
                f"not ended after {seconds:g} s: {error.stdout!r} {error.stderr!r} {details()}"
            ) from None
        print(result.stdout, result.stderr, sep="\n--- stderr ---\n")  # for the case of a failing test
        assert self.family() == []
        return result

    def destroy(self) -> None:
        """Ends what is left of a job that did not go as planned."""
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait(10)

    def family(self) -> list[psutil.Process]:
        """Living processes with the marker, the launcher among them."""
        return family(self.marker)

    def agent(self) -> psutil.Process:
        """The agent process."""
        guardian = self.guardian()
        return next(process for process in self.family() if process.ppid() == guardian.pid)

    def guardian(self) -> psutil.Process:
        """The agent's parent."""
        agents = [process for process in self.family() if "horovod.runner.agent" in process.cmdline()]
        return next(process for process in agents if process.ppid() == self.process.pid)


def horovodrun(
    *argv: str, cwd: Path | None = None, env: dict[str, str] | None = None, seconds: float = ENOUGH
) -> subprocess.CompletedProcess[str]:
    """Runs horovodrun to its end and checks that nothing is left of it."""
    launcher = Launcher(*argv, cwd=cwd, env=env)
    result = launcher.finish(seconds)
    assert launcher.family() == []
    return result


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Fails with ``what`` if ``condition`` does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
