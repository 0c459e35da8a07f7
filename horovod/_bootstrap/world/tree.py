"""Who talks to whom about what is ready: a tree with rank 0 at its root. A pure function.

The first rank of each host is its leader. The others of the host talk to it, and leaders form a
tree, so that no rank, and rank 0 least of all, hears from every other one.
"""

from __future__ import annotations

from collections.abc import Sequence

FAN_OUT = 32  # leaders right below one


def parents_of(hosts: Sequence[int], fan_out: int | None = None) -> list[int]:
    """The rank above each rank, 0 for rank 0, from the number of each rank's host.

    A parent is always a lower rank than its child.
    """
    below = FAN_OUT if fan_out is None else fan_out
    leader = {host: rank for rank, host in reversed(list(enumerate(hosts)))}
    leaders = sorted(leader.values())
    above = {rank: leaders[max(place - 1, 0) // below] for place, rank in enumerate(leaders)}
    return [above.get(rank, leader[host]) for rank, host in enumerate(hosts)]


def neighbours_of(rank: int, parents: Sequence[int]) -> list[int]:
    """The rank above and those right below."""
    above = [] if rank == 0 else [parents[rank]]
    return above + [below for below in range(1, len(parents)) if parents[below] == rank]
