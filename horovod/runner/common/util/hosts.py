"""Host lists and ranks under the names that schedulers use, on horovod.runner.plan.hosts."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.runner.plan.hosts import HostInfo, SlotInfo, assign_ranks, parse_hostfile, parse_hosts

__all__ = [
    "HostInfo",
    "SlotInfo",
    "get_host_assignments",
    "parse_host_files",
    "parse_hosts",
    "parse_hosts_and_slots",
]


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """The names of ``name:slots,name:slots`` in order, and the slots by name."""
    found = parse_hosts(hosts)
    return [host.hostname for host in found], {host.hostname: host.slots for host in found}


def parse_host_files(filename: str) -> str:
    """The hosts of a hostfile in the form of ``-H``."""
    with open(filename, encoding="utf-8") as file:
        found = parse_hostfile(file.read(), filename)
    return ",".join(f"{_bracketed(host.hostname)}:{host.slots}" for host in found)


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Ranks for all slots, but at most ``max_num_proc``.

    ValueError if there are fewer than the minimum.
    """
    available = sum(host.slots for host in hosts)
    size = available if max_num_proc is None else min(available, max_num_proc)
    return assign_ranks(hosts, max(size, min_num_proc))
