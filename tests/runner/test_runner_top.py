"""--top: a job in a terminal, which is left as it was."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from runner_util import Launcher, horovodrun
from util_paths import ROOT

from horovod.runner.top import drawn


class Top:
    """horovodrun --top in a terminal of its own."""

    def __init__(self, env: dict[str, str]) -> None:
        self.master, slave = pty.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "horovod.runner.launch", "--top"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "140", **env},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )
        os.close(slave)

    def read_until(self, words: str, seconds: float = 40.0) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < deadline, (words, self.text)
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.master, 1 << 16).decode(errors="replace")
                except OSError:  # nobody has the other end any more
                    assert words in self.text, self.text

    def finish(self) -> int:
        code = self.process.wait(40)
        while select.select([self.master], [], [], 0.2)[0]:
            try:
                self.text += os.read(self.master, 1 << 16).decode(errors="replace")
            except OSError:
                break
        os.close(self.master)
        # The cursor was hidden while it drew.
        assert self.text.rfind("\x1b[?25h") > self.text.rfind("\x1b[?25l")
        return code


PROGRAM = """
import time
import horovod.numpy as hvd

hvd.init()
print("up", flush=True)
while True:
    hvd.mark_step()
    time.sleep(0.02)
"""


def test_it_draws_and_ends_with_the_job(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    launcher = Launcher("-np", "2", "--dashboard", sys.executable, "-c", PROGRAM, env=env)
    launcher.wait_for(2, "up")
    top = Top(env)
    top.read_until("2 ranks, running")
    top.read_until("localhost")
    top.read_until("steps/s")  # which only the dashboard knows,
    top.read_until(" GB")  # as it does the memory of a rank
    launcher.process.terminate()
    assert launcher.finish().returncode == 143
    assert top.finish() == 0
    *_, last = top.text.split("2 ranks, ended with code 143")
    assert last.count(" GB") == 2, last  # what was known last of the ranks is still there


def test_ctrl_c_ends_only_the_view(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    launcher = Launcher("-np", "1", "sh", "-c", "echo up; exec sleep 100", env=env)
    launcher.wait_for(1, "up")
    top = Top(env)
    top.read_until("1 ranks, running")
    top.process.send_signal(signal.SIGINT)
    assert top.finish() == 130
    assert launcher.process.poll() is None
    launcher.process.terminate()
    launcher.finish()


def test_no_job(tmp_path: Path) -> None:
    result = horovodrun("--top", env={"XDG_STATE_HOME": str(tmp_path)})
    assert result.returncode == 1 and "no job of horovodrun runs here" in result.stderr


def test_names_are_no_markup() -> None:
    rank = {"rank": 0, "host": "[red]h[/red]", "state": "running", "running": "grad[/b]"}
    console = Console(width=140)
    with console.capture() as captured:
        snapshot = {"job": {}, "over": False, "silent": False, "rates": {}, "ranks": [rank], "events": []}
        console.print(drawn(snapshot))
    assert "[red]h[/red]" in captured.get() and "grad[/b]" in captured.get()
