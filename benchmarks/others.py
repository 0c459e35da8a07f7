"""How much of the processors' time programs took that are no part of a benchmark."""

from __future__ import annotations

import os
from pathlib import Path


class Others:
    """From when it is made; the benchmark's processes must have ended, and been waited for, at the end."""

    def __init__(self) -> None:
        self._begin = self._ticks()

    def share(self) -> float:
        """Of all that the processors could have done."""
        total, busy, ours = (after - before for before, after in zip(self._begin, self._ticks(), strict=True))
        return max(0.0, busy - ours) / total

    @staticmethod
    def _ticks() -> tuple[float, float, float]:
        """All, those of all programs, and those of this one with its children."""
        numbers = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split()[1:9]]
        idle = numbers[3] + numbers[4]
        ours = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
        return sum(numbers), sum(numbers) - idle, ours
