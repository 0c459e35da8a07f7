"""Checks of processors, memory, clock and limits of one machine. ``root`` is where its files are.

A file that does not exist, as on other kernels and in containers, is not a finding.
"""

from __future__ import annotations

import math
from pathlib import Path

from horovod.runner.doctor.finding import OK, WARNING, Finding

_QUICK_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
_ENOUGH_MEMORY = 1 << 30  # bytes for each rank: interpreter, framework and a small model
_SLOW_COPY = 2e9  # bytes per second; DDR4 with one busy core has 5 to 12


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


def processors(root: Path, allowed: int, ranks: int) -> Finding:
    """``allowed`` is the number of processors of this process's affinity mask."""
    limit = quota(root)
    usable = min(float(allowed), limit)
    why = f", of which a control group allows the time of {limit:g}" if limit < allowed else ""
    have = f"{allowed} processor{'s' if allowed != 1 else ''}{why}"
    if ranks > usable:
        return Finding(
            WARNING,
            f"{have}, but {ranks} ranks: they will wait for each other's turns. Start at most "
            f"{max(1, int(usable))} here, or give the container more (docker --cpus, resources.limits.cpu)",
        )
    return Finding(OK, f"{have} for {ranks} rank{'s' if ranks != 1 else ''}")


def threads(text: str | None, allowed: int, ranks: int) -> Finding:
    """``text`` is the value of OMP_NUM_THREADS."""
    each = int(text) if text is not None and text.isdecimal() and int(text) > 0 else None
    if each is None and (ranks == 1 or allowed == 1):
        return Finding(OK, "OMP_NUM_THREADS is not set: frameworks start a thread for each processor")
    total = ranks * (allowed if each is None else each)
    if total <= allowed:
        return Finding(OK, f"{ranks} ranks with {each} computing threads each, {allowed} processors")
    said = "is not set, so that each rank computes with a thread for each processor"
    if each is not None:
        said = f"is {each}"
    good = max(1, allowed // ranks)
    return Finding(
        WARNING,
        f"OMP_NUM_THREADS {said}: {total} threads on {allowed} processors. Set OMP_NUM_THREADS={good}",
    )


def clock(root: Path) -> Finding | None:
    """Where reading the clock is a system call, timelines cost more, and so does every wait."""
    source = text_of(root / "sys/devices/system/clocksource/clocksource0/current_clocksource")
    if not source:
        return None
    if source in _QUICK_CLOCKS:
        return Finding(OK, f"clock source {source}: reading it takes some 25 ns")
    return Finding(
        WARNING,
        f"clock source {source}: reading it is a system call. If "
        "/sys/devices/system/clocksource/clocksource0/available_clocksource has tsc or kvm-clock, write "
        "that into current_clocksource",
    )


def memory(root: Path, ranks: int) -> Finding | None:
    """What is left for the ranks."""
    amounts = {
        line.partition(":")[0]: int(line.split()[1]) * 1024
        for line in text_of(root / "proc/meminfo").splitlines()
        if len(line.split()) > 1
    }
    if "MemAvailable" not in amounts:
        return None
    free, swapped = amounts["MemAvailable"], amounts.get("SwapTotal", 0) - amounts.get("SwapFree", 0)
    have = f"{free / 2**30:.1f} GiB of memory are available"
    if free < ranks * _ENOUGH_MEMORY:
        return Finding(
            WARNING,
            f"{have} for {ranks} ranks; a framework alone takes most of 1 GiB each. End other programs, or "
            "start fewer ranks: the kernel kills one if memory runs out (signal 9)",
        )
    if swapped > free:
        return Finding(WARNING, f"{have}, and {swapped / 2**30:.1f} GiB are swapped out: end other programs")
    return Finding(OK, have)


def copying(bytes_per_second: float) -> Finding:
    """How quickly one core copies memory: the most that a collective within a host can reach."""
    said = f"one core copies {bytes_per_second / 1e9:.1f} GB/s"
    if bytes_per_second < _SLOW_COPY:
        return Finding(
            WARNING, f"{said}, less than {_SLOW_COPY / 1e9:g}: other programs use the memory, or the machine"
        )
    return Finding(OK, said)


def descriptors(soft: int, hard: int, ranks: int) -> Finding:
    """``hard`` counts: jobs raise their own limit up to it. A rank has up to 4 for each other one."""
    needed = 64 + 4 * ranks
    if hard < needed:
        return Finding(
            WARNING,
            f"at most {hard} open files, and {ranks} ranks need up to {needed}: raise the hard limit "
            "(ulimit -Hn, LimitNOFILE= of systemd, nofile in /etc/security/limits.conf)",
        )
    return Finding(OK, f"up to {hard} open files" + (f" ({soft} without asking)" if soft < hard else ""))
