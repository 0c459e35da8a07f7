"""The processors that this process may use, and how many threads each rank is to compute with."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

# What frameworks read before they start their threads: PyTorch and BLAS, TensorFlow, XLA on processors.
THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "NPROC")


def text_of(path: Path) -> str:
    """The content of a small file; empty if there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def quota(root: Path) -> float:
    """Processors that the control groups of this process allow it; infinite if none says so."""
    limit = math.inf
    for line in text_of(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        base = root / "sys/fs/cgroup"
        if number != "0":
            if "cpu" not in controllers.split(","):
                continue
            base = base / "cpu"
        # A container sees its own group as the top; the path may then lead nowhere.
        inner = path.strip("/")
        while True:
            limit = min(limit, _quota_in(base / inner))
            if not inner:
                break
            inner = inner.rpartition("/")[0]
    return limit


def _quota_in(group: Path) -> float:
    words = text_of(group / "cpu.max").split()
    if not words:
        words = [text_of(group / "cpu.cfs_quota_us"), text_of(group / "cpu.cfs_period_us")]
    try:
        allowed, period = float(words[0]), float(words[1])
    except (ValueError, IndexError):
        return math.inf
    return allowed / period if allowed > 0 and period > 0 else math.inf


def share(processors: float, ranks: int) -> int:
    """Threads for each of the ranks of a host."""
    return max(1, int(processors / ranks))


def thread_variables(environ: Mapping[str, str], ranks: int) -> dict[str, str]:
    """What tells each of some ranks on this machine to compute with its share of the processors.

    Nothing if it is alone, or where somebody has decided already.
    """
    if ranks < 2 or any(name in environ for name in THREADS):
        return {}
    usable = min(len(os.sched_getaffinity(0)), quota(Path("/")))
    return dict.fromkeys(THREADS, str(share(usable, ranks)))
