"""The numbers of the ranks of a world, from the slots they run in. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.runner.plan.hosts import SlotInfo


def places(slots: Sequence[tuple[str, int]]) -> list[SlotInfo]:
    """The place of each rank; ``slots`` are host and slot, by rank.

    The local rank is the slot, which a process keeps as long as it lives, even if slots below are
    empty.
    """
    hosts = list(dict.fromkeys(host for host, _ in slots))
    taken = set(slots)
    result: list[SlotInfo] = []
    for rank, (host, slot) in enumerate(slots):
        across = [other for other in hosts if (other, slot) in taken]
        result.append(
            SlotInfo(
                hostname=host,
                rank=rank,
                local_rank=slot,
                cross_rank=across.index(host),
                size=len(slots),
                local_size=sum(other == host for other, _ in slots),
                cross_size=len(across),
            )
        )
    return result
