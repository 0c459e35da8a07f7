"""What the search for parameters has found, kept for the next job on machines like these."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import horovod

AUTO, OFF = "auto", "off"


def path(setting: str, transport: str, hosts: Sequence[str], environ: Mapping[str, str]) -> Path | None:
    """The file that HOROVOD_AUTOTUNE_PROFILE stands for; hosts[i] is rank i's."""
    if setting.lower() == OFF:
        return None
    if setting.lower() != AUTO:
        return Path(setting)
    cache = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # the specification: anything else is to be ignored
        cache = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    machine = json.dumps(_machine(transport, hosts), sort_keys=True)
    return Path(cache, "horovod", f"profile-{hashlib.sha256(machine.encode()).hexdigest()[:16]}.json")


def _machine(transport: str, hosts: Sequence[str]) -> dict[str, Any]:
    """What good parameters depend on, as rank 0 sees it."""
    return {
        "version": horovod.__version__,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "ranks": sorted(Counter(hosts).values()),
        "transport": transport,
        "links": _links(),
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        if found := re.search(r"^(?:model name|CPU part)\s*: (.*)$", text, re.MULTILINE):
            return found[1]
    return os.uname().machine


def _links() -> list[int]:
    """Speeds of the network interfaces that have one, in Mbit/s."""
    speeds = []
    for file in Path("/sys/class/net").glob("*/speed"):
        with contextlib.suppress(OSError, ValueError):  # those that are down, and virtual ones
            speeds.append(int(file.read_text()))
    return sorted(speed for speed in speeds if speed > 0)


def read(file: Path) -> dict[str, int]:
    """The values in the file; none if there is no such file or it is of no use."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(file.read_text())
        values = content.get("values") if isinstance(content, dict) else None
        if isinstance(values, dict) and all(
            type(value) is int and 0 <= value < 1 << 62 for value in values.values()
        ):
            return values
    return {}


def write(file: Path, values: Mapping[str, int], ratio: float, steps: int) -> None:
    """Replaces the file. OSError if that can't be done."""
    content = {"values": dict(values), "ratio": ratio, "steps": steps, "version": horovod.__version__}
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    number, name = tempfile.mkstemp(dir=file.parent, prefix=file.name)
    try:
        with open(number, "w") as stream:
            json.dump(content, stream, indent=1)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise
