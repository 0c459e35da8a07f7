"""Checks of processors, memory, clock and limits of one machine. ``root`` is where its files are.

A file that does not exist, as on other kernels and in containers, is not a finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from horovod.runner.doctor.finding import OK, WARNING, Finding
from horovod.runner.processors import THREADS, quota, share, text_of

_QUICK_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
_ENOUGH_MEMORY = 1 << 30  # bytes for each rank: interpreter, framework and a small model
_SLOW_COPY = 2e9  # bytes per second; DDR4 with one busy core has 5 to 12


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


def threads(environ: Mapping[str, str], allowed: int, ranks: int) -> Finding:
    """``environ`` is that of horovodrun."""
    own = [name for name in THREADS if name in environ]
    text = environ.get("OMP_NUM_THREADS", "")
    each = int(text) if text.isdecimal() and int(text) > 0 else None
    if ranks == 1:
        return Finding(OK, "one rank: frameworks compute with a thread for each processor")
    if not own:
        return Finding(OK, f"threads that each rank is told to compute with: {share(allowed, ranks)}")
    total = ranks * (allowed if each is None else each)
    if total <= allowed:
        return Finding(OK, f"{ranks} ranks with {each} computing threads each, {allowed} processors")
    good = share(allowed, ranks)
    return Finding(
        WARNING,
        f"{' and '.join(own)} {'is' if len(own) == 1 else 'are'} set, so horovodrun leaves threads to you: "
        f"{total} on {allowed} processors. Unset it, or set OMP_NUM_THREADS={good}",
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
