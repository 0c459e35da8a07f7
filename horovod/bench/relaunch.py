"""Starts the benchmark again as several processes when it was started alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

_PREFIX = "[0]<stdout>:"  # what horovodrun puts before each line of rank 0
_STOP_SECONDS = 30.0


def relaunch(np: int, argv: Sequence[str]) -> int:
    """Runs `python -m horovod.bench` on `np` processes, shows rank 0's output as if it were ours.

    Returns the exit code.
    """
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(np)]
    command += [sys.executable, "-m", "horovod.bench", *argv]
    environment = dict(os.environ)
    if sys.stdout.isatty():  # the ranks write to a pipe, but it ends here
        environment.setdefault("COLUMNS", str(os.get_terminal_size(sys.stdout.fileno()).columns))
        if "NO_COLOR" not in environment:
            environment.setdefault("FORCE_COLOR", "1")
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                sys.stdout.write(line.removeprefix(_PREFIX))
                sys.stdout.flush()
            return process.wait()
        except KeyboardInterrupt:  # the terminal sent it to horovodrun as well, which ends the ranks
            process.wait(_STOP_SECONDS)
            return 130
