"""Which hosts, which ranks: parsing of host lists and assignment of ranks. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from horovod._bootstrap.identity import Place

_USER = r"(?:[A-Za-z0-9_.][A-Za-z0-9_.$-]*@)?"
_NAME = r"[A-Za-z0-9_.][A-Za-z0-9_.-]*"  # a leading dash could be taken for a flag of ssh
_BRACKETED = r"\[[0-9A-Fa-f:.]+\]"  # an IPv6 address, set apart from the slots
_IPV6 = r"[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*"
_PYTHON = r"(?:\s+python\s*=\s*(/\S+))?"
_ENTRY = re.compile(rf"({_USER}(?:{_NAME}|{_BRACKETED}))(?::(\d+))?", re.ASCII)
_LINE = re.compile(
    rf"(?:({_USER}(?:{_NAME}|{_BRACKETED}))(?::(\d+)|\s+slots\s*=\s*(\d+))?"
    rf"|({_USER}{_IPV6})(?:\s+slots\s*=\s*(\d+))?){_PYTHON}",
    re.ASCII,
)
_MOST_SLOTS = 10_000  # of a discovered host; each is looked at


@dataclass(frozen=True)
class HostInfo:
    """A host (``name`` or ``user@name``) and how many processes it may run."""

    hostname: str
    slots: int
    python: str | None = None  # path of its interpreter, if not the same as here

    @classmethod
    def from_string(cls, text: str) -> HostInfo:
        """One entry of parse_hosts()."""
        found = parse_hosts(text)
        if len(found) != 1:
            raise ValueError(f"{text!r} is not one host, such as node1:4")
        return found[0]


@dataclass(frozen=True)
class SlotInfo:
    """One process and its place in the job."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def place(self) -> Place:
        """Without the host."""
        return Place(self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)

    def environment(self) -> dict[str, str]:
        """The variables that tell the process who it is."""
        return {"HOROVOD_HOSTNAME": self.hostname, **self.place().variables()}


def parse_hosts(text: str) -> list[HostInfo]:
    """Hosts from ``name:slots,name,[IPv6]:slots``; without slots 1.

    ValueError names a wrong entry.
    """
    hosts: list[HostInfo] = []
    for entry in text.split(","):
        match = _ENTRY.fullmatch(entry.strip())
        if match is None:
            raise ValueError(
                f"host entry {entry.strip()!r} is not valid: it must be name:slots, such as node1:4, or name"
            )
        hosts.append(_host(match[1], match[2], f"host entry {entry.strip()!r}"))
    return _collapse(hosts)


def parse_hostfile(text: str, source: str = "hostfile") -> list[HostInfo]:
    """Hosts from lines ``name slots=N``, ``name:N`` or ``name`` (one slot), each with
    ``python=PATH`` after it if its interpreter is elsewhere. ``#`` starts a comment; blank lines
    and indentation do not matter. ValueError names ``source`` and the line that is wrong."""
    hosts: list[HostInfo] = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        where = f"{source}, line {number}: {entry!r}"
        match = _LINE.fullmatch(entry)
        if match is None:
            raise ValueError(
                f"{where} is not valid: it must be 'name slots=N', 'name:N' or 'name', and may end with "
                "'python=/path/of/python'"
            )
        host = _host(match[1] or match[4], match[2] or match[3] or match[5], where)
        hosts.append(replace(host, python=match[6]))
    if not hosts:
        raise ValueError(f"{source} names no host: write one per line, such as 'node1 slots=4'")
    return _collapse(hosts)


def parse_discovered(text: str, slots: int, source: str) -> list[HostInfo]:
    """Hosts from the output of a discovery script: the lines of a hostfile, or none at all.

    A line without a number means ``slots``, and 0 is a number: the host is to be left. ValueError
    if any line is wrong: half an answer must not take hosts away.
    """
    hosts: list[HostInfo] = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        match = _LINE.fullmatch(entry)
        if match is None:
            raise ValueError(f"{source}, line {number}: {entry!r} is neither 'host' nor 'host:slots'")
        name, given = match[1] or match[4], match[2] or match[3] or match[5]
        count = slots if given is None else int(given)
        if count > _MOST_SLOTS:
            raise ValueError(f"{source}, line {number}: {entry!r} has more than {_MOST_SLOTS} slots")
        hosts.append(HostInfo(name.replace("[", "").replace("]", ""), count, match[6]))
    return _collapse(hosts)


def _host(name: str, number: str | None, where: str) -> HostInfo:
    slots = 1 if number is None else int(number)
    if slots < 1:
        raise ValueError(f"{where} has no slots: give at least 1")
    return HostInfo(name.replace("[", "").replace("]", ""), slots)


def _collapse(hosts: Iterable[HostInfo]) -> list[HostInfo]:
    # A host that is listed again keeps its place and takes the later number of slots.
    return list({host.hostname: host for host in hosts}.values())


def assign_ranks(hosts: Sequence[HostInfo], size: int) -> list[SlotInfo]:
    """Exactly ``size`` processes: hosts in the given order, each filled before the next."""
    if size < 1:
        raise ValueError(f"the number of processes is {size}: it must be at least 1")
    available = sum(host.slots for host in hosts)
    if available < size:
        raise ValueError(
            f"{size} processes were requested but the hosts have {available} slots: "
            "ask for fewer with -np or give the hosts more slots"
        )
    used: list[HostInfo] = []
    for host in hosts:
        taken = min(host.slots, size - sum(other.slots for other in used))
        if taken:
            used.append(HostInfo(host.hostname, taken))
    slots: list[SlotInfo] = []
    for position, host in enumerate(used):
        for local_rank in range(host.slots):
            slots.append(
                SlotInfo(
                    hostname=host.hostname,
                    rank=len(slots),
                    local_rank=local_rank,
                    cross_rank=sum(other.slots > local_rank for other in used[:position]),
                    size=size,
                    local_size=host.slots,
                    cross_size=sum(other.slots > local_rank for other in used),
                )
            )
    return slots
