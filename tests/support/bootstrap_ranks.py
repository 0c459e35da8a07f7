"""Starts ranks of the bootstrap tests as processes and collects what they report."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from util_paths import ROOT

KEY = bytes(range(32))
_WORKER = Path(__file__).with_name("bootstrap_worker.py")


_SERVER = """
import sys
from horovod._bootstrap.rendezvous.server import RendezvousServer
with RendezvousServer(bytes.fromhex(sys.argv[1])) as server:
    print(server.port, flush=True)
    sys.stdin.read()
"""


class Ranks:
    """Running ranks."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.servers: list[subprocess.Popen[str]] = []

    def start(self, **plan: Any) -> subprocess.Popen[str]:
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, str(_WORKER), json.dumps({"key": KEY.hex(), **plan})],
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )
        self.processes.append(process)
        return process

    def start_server(self) -> tuple[subprocess.Popen[str], int]:
        """A launcher in a process of its own, and its port. It is not among the ranks' results()."""
        server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, KEY.hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.servers.append(server)
        assert server.stdout is not None
        return server, int(server.stdout.readline())

    def start_all(self, size: int, **plan: Any) -> None:
        for rank in range(size):
            self.start(rank=rank, size=size, **plan)

    def results(self, timeout: float = 60) -> list[dict[str, Any]]:
        """The last report of every rank."""
        return [last_report(process, timeout) for process in self.processes]


def last_report(process: subprocess.Popen[str], timeout: float = 60) -> dict[str, Any]:
    output, _ = process.communicate(timeout=timeout)
    lines = output.splitlines()
    assert lines, f"rank ended with {process.returncode} and no report"
    report: dict[str, Any] = json.loads(lines[-1])
    return report


@contextlib.contextmanager
def ranks() -> Iterator[Ranks]:
    running = Ranks()
    try:
        yield running
    finally:
        for process in running.processes + running.servers:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
