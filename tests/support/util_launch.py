"""Runs scripts under the real horovodrun, with a deadline and nothing left behind."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """What a launch printed and how it ended."""

    code: int
    output: str


class UnfinishedError(AssertionError):
    """A command that did not end in time; it has been ended. `output` is what it had printed by then."""

    def __init__(self, words: Sequence[str], seconds: float, output: str) -> None:
        super().__init__(f"not finished after {seconds} s: {' '.join(words)}\n{output}")
        self.output = output


def finish(words: Sequence[str], timeout: float, environment: Mapping[str, str]) -> Outcome:
    """A command that ends its processes on SIGTERM. UnfinishedError if it does not end in time."""
    process = subprocess.Popen(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            output, _ = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        raise UnfinishedError(words, timeout, output) from None
    return Outcome(process.returncode, output)


def launch(np: int, *command: str | Path, timeout: float = 120, **environment: str) -> Outcome:
    """`horovodrun -np <np> python <command>`. UnfinishedError if it does not end in time."""
    spec = importlib.util.find_spec("horovod")
    assert spec is not None and spec.origin is not None
    path = os.pathsep.join(filter(None, [str(Path(spec.origin).parents[1]), os.environ.get("PYTHONPATH")]))
    horovodrun = [sys.executable, "-m", "horovod.runner.launch", "-np", str(np)]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return finish(
        [*horovodrun, sys.executable, *map(str, command)],
        timeout,
        {**os.environ, "PYTHONPATH": path, **threads, **environment},
    )
