"""Examines the machine that it runs on; ``main`` is what the doctor starts on other hosts."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from horovod import __version__
from horovod.runner.doctor import machine_checks, network_checks
from horovod.runner.doctor.finding import Finding

# A line of this and JSON: a shell may print a greeting before it.
MARK = "horovod-doctor "
_PACKAGES = ("numpy", "torch", "tensorflow", "tensorflow-cpu", "keras", "jax", "mpi4py")
_COPY_BYTES = 32 << 20
_COPY_SECONDS = 0.1
_NO_LIMIT = 1 << 30


@dataclass(frozen=True)
class Examination:
    """What one host has told."""

    findings: list[Finding]
    versions: dict[str, str]
    link_mbit: int | None

    def to_json(self) -> str:
        return json.dumps([self.findings, self.versions, self.link_mbit])

    @staticmethod
    def from_json(text: str) -> Examination:
        findings, versions, link_mbit = json.loads(text)
        return Examination([Finding(*each) for each in findings], versions, link_mbit)


def examine(ranks: int) -> Examination:
    """All checks of this machine, for so many ranks on it."""
    root = Path("/")
    allowed = len(os.sched_getaffinity(0))
    soft, hard = (
        _NO_LIMIT if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    found = [
        machine_checks.processors(root, allowed, ranks),
        machine_checks.threads(os.environ, allowed, ranks),
        machine_checks.clock(root),
        machine_checks.memory(root, ranks),
        machine_checks.copying(copy_speed()),
        machine_checks.descriptors(soft, hard, ranks),
        *network_checks.interfaces(root),
        network_checks.congestion(root),
    ]
    return Examination(
        [each for each in found if each is not None], versions(), network_checks.link_mbit(root)
    )


def copy_speed() -> float:
    """Bytes per second that one core copies, at best."""
    source, target = bytearray(_COPY_BYTES), bytearray(_COPY_BYTES)
    best = float("inf")
    end = time.monotonic() + _COPY_SECONDS
    while best == float("inf") or time.monotonic() < end:
        begin = time.perf_counter()
        target[:] = source
        best = min(best, time.perf_counter() - begin)
    return _COPY_BYTES / best


def versions() -> dict[str, str]:
    """Of what a training consists of."""
    found = {"python": platform.python_version(), "horovod": __version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main() -> None:
    """Prints the examination of this host; the first argument is the number of ranks."""
    print(MARK + examine(int(sys.argv[1])).to_json())
