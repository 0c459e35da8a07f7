"""Runs scripts under the real horovodrun, with a deadline and nothing left behind."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WORKER = Path(__file__).with_name("util_worker.py")


@dataclass(frozen=True)
class Outcome:
    """What a launch printed and how it ended."""

    code: int
    output: str


def launch(np: int, *command: str | Path, timeout: float = 120, **environment: str) -> Outcome:
    """`horovodrun -np <np> python <command>`. AssertionError with its output if it does not end in time."""
    spec = importlib.util.find_spec("horovod")
    assert spec is not None and spec.origin is not None
    path = os.pathsep.join(filter(None, [str(Path(spec.origin).parents[1]), os.environ.get("PYTHONPATH")]))
    arguments = [
        sys.executable,
        "-m",
        "horovod.runner.launch",
        "-np",
        str(np),
        sys.executable,
        *map(str, command),
    ]
    process = subprocess.Popen(
        arguments,
        env={
            **os.environ,
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        try:
            output, _ = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        raise AssertionError(f"not finished after {timeout} s: {' '.join(arguments)}\n{output}") from None
    return Outcome(process.returncode, output)


def run_checks(np: int, checks: Path, *only: str, timeout: float = 120, **environment: str) -> None:
    """Runs every `check_*` function of a file (or those named) on all ranks of one launch: util_worker.py."""
    outcome = launch(np, WORKER, checks, *only, timeout=timeout, **environment)
    assert outcome.code == 0 and "all checks passed" in outcome.output, outcome.output
