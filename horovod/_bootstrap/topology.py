"""Which ranks are combined first: those of a host, or as a setting says. Pure functions.

Sums depend on this grouping. The setting lets a job on one host, or on fewer, give the bits of
another one.
"""

from __future__ import annotations

from collections.abc import Sequence

VARIABLE = "HOROVOD_TOPOLOGY"


def groups_of(topology: Sequence[int], size: int) -> list[int]:
    """The group of each rank, from the numbers of ranks in each group.

    ValueError if they don't add up.
    """
    if sum(topology) != size:
        raise ValueError(
            f"{VARIABLE}={','.join(map(str, topology))} places {sum(topology)} ranks, but the job has "
            f"{size}: it must be the number of ranks of each host, such as {_example(size)}"
        )
    return [group for group, count in enumerate(topology) for _ in range(count)]


def grouping(hosts: Sequence[int], wanted: Sequence[int] | None) -> list[int]:
    """The number, from 0 in order of appearance, of the group to which each rank belongs.

    `hosts` are the numbers of the ranks' hosts, `wanted` their groups according to the setting, if
    any.
    """
    keys = hosts if wanted is None else wanted
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return [numbers[key] for key in keys]


def apart(hosts: Sequence[int], groups: Sequence[int]) -> tuple[int, int] | None:
    """Two ranks of one group that are on different hosts, though they are to share memory."""
    first: dict[int, int] = {}
    for rank, group in enumerate(groups):
        lower = first.setdefault(group, rank)
        if hosts[rank] != hosts[lower]:
            return lower, rank
    return None


def _example(size: int) -> str:
    half = size // 2
    return f"{size - half},{half}" if half else "1"
