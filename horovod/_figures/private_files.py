"""Files that only the user may read, and where they are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def state_directory(environ: Mapping[str, str]) -> Path:
    """Where this user's programs keep what they remember: the tokens, and the jobs."""
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the specification: anything else is to be ignored
        state = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return Path(state, "horovod")


def write_secret(path: Path, text: str) -> None:
    """A new file that only its user may read. OSError if there is one."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
