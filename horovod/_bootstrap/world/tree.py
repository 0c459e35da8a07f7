"""Who talks to whom about what is ready: a tree with rank 0 at its root. A pure function.

The first rank of each host is its leader. The others of the host talk to it, or, if they are many,
to the first of a part of them; and leaders form a tree, so that no rank, and rank 0 least of all,
hears from every other one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

FAN_OUT = 32  # right below one: leaders at most, and ranks of the same host


def parents_of(hosts: Sequence[int], fan_out: int | None = None) -> list[int]:
    """The rank above each rank, 0 for rank 0, from the number of each rank's host.

    A parent is always a lower rank than its child.
    """
    most = FAN_OUT if fan_out is None else fan_out
    ranks_of: dict[int, list[int]] = {}
    for rank, host in enumerate(hosts):
        ranks_of.setdefault(host, []).append(rank)
    leaders = [ranks[0] for ranks in ranks_of.values()]
    parents = [0] * len(hosts)
    for place, leader in enumerate(leaders):
        parents[leader] = leaders[max(place - 1, 0) // most]
    for leader, *others in ranks_of.values():
        _put_below(leader, others, most, parents)
    return parents


def _put_below(above: int, ranks: Sequence[int], most: int, parents: list[int]) -> None:
    """Ranks of one host; if there are more than `most`, in about as many parts as each has ranks."""
    parts = len(ranks) if len(ranks) <= most else min(math.isqrt(len(ranks) - 1) + 1, most)
    for part in range(parts):
        first, *others = ranks[part * len(ranks) // parts : (part + 1) * len(ranks) // parts]
        parents[first] = above
        _put_below(first, others, most, parents)


def neighbours_of(rank: int, parents: Sequence[int]) -> list[int]:
    """The rank above and those right below."""
    above = [] if rank == 0 else [parents[rank]]
    return above + [below for below in range(1, len(parents)) if parents[below] == rank]


def asked_by(rank: int, size: int, first: int, neighbours: Iterable[int]) -> Iterable[int]:
    """Whom a rank asks the rendezvous for: rank 0 for all, to tell the others; these for `first`, on
    their host, and for their neighbours in the tree, through which they hear of the rest.
    """
    return range(size) if rank == 0 else {rank, first, *neighbours}
