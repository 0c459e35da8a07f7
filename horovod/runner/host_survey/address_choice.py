"""Which addresses the hosts of a job use, from what each has found reachable. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def cover(offered: Sequence[str], reached_by: Mapping[str, Iterable[str]]) -> tuple[list[str], list[str]]:
    """The fewest first of ``offered`` addresses of a host such that every other host reaches one of
    them.

    ``reached_by`` tells for each other host the addresses that it reached. Also returns the hosts
    that reached none. A host that nobody else wants to reach uses its first address.
    """
    missing = {host: set(addresses) for host, addresses in reached_by.items()}
    chosen: list[str] = []
    while True:
        counts = {address: sum(address in each for each in missing.values()) for address in offered}
        # The first of equals
        best = max(offered, key=lambda address: counts[address], default=None)
        if best is None or counts[best] == 0:
            break
        chosen.append(best)
        missing = {host: each for host, each in missing.items() if best not in each}
    return chosen or list(offered[:1]), sorted(missing)
