"""Starts the examples as their users do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from util_paths import EXAMPLES, ROOT

MULTINODE = EXAMPLES / "tensorflow" / "TensorFlow_Multinode_Training_with_Horovod.py"
SEVERAL = Path(__file__).with_name("program_several.py")


def run(*words: str | Path, cwd: Path, timeout: float = 240, **environment: str) -> tuple[int, str]:
    """Exit code and output of a command. subprocess.TimeoutExpired after `timeout` seconds."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    return done.returncode, done.stdout


def horovodrun(*words: str | Path, cwd: Path, **environment: str) -> tuple[int, str]:
    return run(sys.executable, "-m", "horovod.runner.launch", *words, cwd=cwd, **environment)


def figures(pattern: str, output: str) -> list[float]:
    """The numbers that match a pattern with one group."""
    return [float(number.replace(",", "")) for number in re.findall(pattern, output)]
