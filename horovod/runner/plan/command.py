"""From the words on the command line to something that can be executed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

NOT_FOUND = 127
NOT_EXECUTABLE = 126


class CommandError(Exception):
    """The command cannot be run; ``exit_code`` is what a shell would give."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def resolve(words: Sequence[str], directory: str, path: str | None) -> list[str]:
    """The command to execute. A Python file runs with this interpreter, a shell script whose first
    line names no interpreter with ``sh``; anything else must be executable. CommandError if there
    is nothing to run."""
    name = words[0]
    file = Path(directory, name)
    found = shutil.which(str(file) if "/" in name else name, path=path)
    if name.endswith(".py") and file.is_file():
        return [sys.executable, *words]
    if name.endswith(".sh") and file.is_file() and (found is None or not _has_interpreter(file)):
        return ["/bin/sh", *words]
    if found is not None:
        return [found, *words[1:]]
    if file.is_dir():
        raise CommandError(f"cannot run {name!r}: it is a directory", NOT_EXECUTABLE)
    if file.exists() and "/" in name:
        raise CommandError(f"cannot run {name!r}: it is not executable (chmod +x {name})", NOT_EXECUTABLE)
    hint = f"; did you mean ./{name}?" if file.exists() else ""
    where = f"there is no such file (working directory: {directory})" if "/" in name else "it is not on PATH"
    if name.endswith((".py", ".sh")):
        where = f"there is no such file (working directory: {directory})"
    raise CommandError(f"command {name!r} not found: {where}{hint}", NOT_FOUND)


def _has_interpreter(file: Path) -> bool:
    try:
        with open(file, "rb") as stream:
            return stream.read(2) == b"#!"
    except OSError:
        return os.access(file, os.X_OK)
