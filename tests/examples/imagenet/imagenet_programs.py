"""Runs programs of examples/imagenet as a user does, on a miniature data set."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from util_paths import EXAMPLES

EXAMPLE = EXAMPLES / "imagenet"
# horovodrun beside this interpreter, few threads, and quiet.
ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    # Some virtual machines announce AMX but do not allow it; then bfloat16 is an illegal instruction.
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "120",
}


@dataclass(frozen=True)
class Miniature:
    """`raw` images and the `records` made from them."""

    raw: Path
    records: Path


def command(program: str, *arguments: str | Path) -> list[str]:
    """A .py file runs with this interpreter, a .sh file by itself."""
    start = [sys.executable] if program.endswith(".py") else []
    return [*start, str(EXAMPLE / program), *map(str, arguments)]


def run(
    program: str, *arguments: str | Path, timeout: float = 240, **environment: str
) -> subprocess.CompletedProcess[str]:
    """To its end."""
    return subprocess.run(
        command(program, *arguments),
        env={**ENVIRONMENT, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
