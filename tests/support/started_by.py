"""Runs the commands of other launchers, with a deadline, and tells what the ranks printed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from util_launch import finish
from util_paths import ROOT

RANK = Path(__file__).with_name("started_rank.py")
_ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def environment(**more: str) -> dict[str, str]:
    """That of this process without the traces of other jobs."""
    foreign = re.compile(r"(OMPI|PMIX?|SLURM|HOROVOD|TORCHELASTIC)_.*|RANK|WORLD_SIZE|JOB_COMPLETION_INDEX")
    kept = {name: value for name, value in os.environ.items() if not foreign.fullmatch(name)}
    path = os.pathsep.join(filter(None, [str(ROOT), more.pop("path", ""), kept.get("PYTHONPATH", "")]))
    return {**kept, **_ROOT_MAY, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def run(command: Sequence[str | Path], env: dict[str, str], seconds: float = 100) -> tuple[int, str]:
    """Exit code and all output; UnfinishedError if it takes longer."""
    outcome = finish(list(map(str, command)), seconds, env)
    return outcome.code, outcome.output


def rank(*words: str) -> list[str | Path]:
    """The command of one rank."""
    return [sys.executable, RANK, *words]


def places(output: str) -> list[str]:
    """What the ranks in mode "well" said, in rank order."""
    return sorted(re.findall(r"place (\S+ \S+ \S+)", output))
