"""Which ranks of several hosts exchange data. Pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

MESH = "mesh"  # the kind of the first of them


def mesh_kinds(streams: int) -> list[str]:
    """Of the connections that carry data between two ranks."""
    return [MESH, *(f"{MESH}.{number}" for number in range(1, streams))]


def lanes_of(hosts: Sequence[int], members: Iterable[int]) -> list[list[int]]:
    """The lanes of a set of ranks, each by host, as HierarchicalLayout of the core has them."""
    by_host: dict[int, list[int]] = {}
    for member in sorted(members):
        by_host.setdefault(hosts[member], []).append(member)
    count = max(map(len, by_host.values()))
    return [[ranks[lane % len(ranks)] for _, ranks in sorted(by_host.items())] for lane in range(count)]


def peers_of(rank: int, hosts: Sequence[int]) -> list[int]:
    """To whom a rank needs a connection for operations of all ranks."""
    lanes = lanes_of(hosts, range(len(hosts)))
    return sorted({peer for lane in lanes if rank in lane for peer in lane} - {rank})


def pairs_of(hosts: Sequence[int], members: Iterable[int]) -> set[tuple[int, int]]:
    """Between whom connections are needed for operations of a set: the lower rank, the higher."""
    lanes = lanes_of(hosts, members)
    return {pair for lane in lanes for pair in itertools.combinations(sorted(lane), 2)}
