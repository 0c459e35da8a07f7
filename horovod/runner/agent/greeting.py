"""What an agent says first: both ends must be of the same version."""

from __future__ import annotations

import json
from pathlib import Path

from horovod import __file__ as package
from horovod import __version__

GREETING = b"HOROVOD-AGENT "


def greeting() -> bytes:
    """The agent's first line."""
    hello = {
        "version": __version__,
        "package": str(Path(package).resolve().parent),
        "boot_id": _boot_id(),
    }
    return GREETING + json.dumps(hello).encode() + b"\n"


def _boot_id() -> str:
    """Another one each time that a machine starts; empty if the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
