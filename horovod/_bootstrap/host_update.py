"""What a notice about the hosts of an elastic job says."""

from __future__ import annotations

from enum import IntFlag


class HostUpdateResult(IntFlag):
    """How the hosts have changed since the last notice."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added
