"""Wakes the launcher's loop: signals, and nudges from other threads."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
STACKS = signal.SIGQUIT  # Ctrl-\: where is every rank? Twice ends the job
ASKED = signal.SIGRTMIN + 8  # --stack-dump asks the same, as often as it likes


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of a signal, which would otherwise end it."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next(line for line in lines if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
    return False


@dataclass
class SignalReceiver:
    """Signals as bytes on a socket, while the job runs."""

    read: socket.socket = field(init=False)
    write: socket.socket = field(init=False)
    previous: dict[int, Any] = field(default_factory=dict)
    previous_fd: int = -1

    def __enter__(self) -> SignalReceiver:
        self.read, self.write = socket.socketpair()
        self.read.setblocking(False)
        self.write.setblocking(False)
        if threading.current_thread() is threading.main_thread():

            def wake(number: int, frame: FrameType | None) -> None:
                pass  # the wake-up descriptor does the work

            self.previous_fd = signal.set_wakeup_fd(self.write.fileno(), warn_on_full_buffer=False)
            for number in (*ENDING, *PASSED_ON, STACKS, ASKED):
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

    def wake(self) -> None:
        """Wakes the loop, from any thread."""
        with contextlib.suppress(OSError):  # full wakes as well; closed: the job is over
            self.write.send(b"\0")

    def received(self) -> list[int]:
        """The signals since the last call."""
        try:
            return [number for number in self.read.recv(4096) if number]
        except BlockingIOError:
            return []

    def hurried(self) -> bool:
        """Whether one of them asks for the end."""
        return any(number in ENDING for number in self.received())
