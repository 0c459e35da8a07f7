"""Runs the commands of other launchers, with a deadline, and tells what the ranks printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RANK = Path(__file__).with_name("started_rank.py")
_ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def environment(**more: str) -> dict[str, str]:
    """That of this process without the traces of other jobs."""
    foreign = re.compile(r"(OMPI|PMIX?|SLURM|HOROVOD|TORCHELASTIC)_.*|RANK|WORLD_SIZE|JOB_COMPLETION_INDEX")
    kept = {name: value for name, value in os.environ.items() if not foreign.fullmatch(name)}
    path = os.pathsep.join(filter(None, [str(ROOT), more.pop("path", ""), kept.get("PYTHONPATH", "")]))
    return {**kept, **_ROOT_MAY, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def run(command: Sequence[str | Path], env: dict[str, str], seconds: float = 100) -> tuple[int, str]:
    """Exit code and all output; AssertionError if it takes longer."""
    words = list(map(str, command))
    process = subprocess.Popen(
        words,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"not finished after {seconds} s: {' '.join(words)}\n{output}") from None
    return process.returncode, output


def rank(*words: str) -> list[str | Path]:
    """The command of one rank."""
    return [sys.executable, RANK, *words]


def places(output: str) -> list[str]:
    """What the ranks in mode "well" said, in rank order."""
    return sorted(re.findall(r"place (\S+ \S+ \S+)", output))
