"""The learning rate of a step: a linear warm-up, then a decay to almost nothing. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

WARMUP_START = 0.001
END = 1e-5
DECAYS = ("poly", "cosine")


@dataclass(frozen=True)
class Schedule:
    """`peak` is reached after `warmup` of `steps` steps."""

    peak: float
    steps: int
    warmup: int
    decay: str = "poly"
    power: float = 2.0

    def rate(self, step: int) -> float:
        """For steps 0, 1, ..."""
        if step < self.warmup:
            return WARMUP_START + (self.peak - WARMUP_START) * step / self.warmup
        part = min(1.0, (step - self.warmup) / max(1, self.steps - self.warmup))
        left = (1.0 - part) ** self.power if self.decay == "poly" else 0.5 * (1.0 + math.cos(math.pi * part))
        return END + (self.peak - END) * left


@dataclass(frozen=True)
class Length:
    """How long to train: `images` per epoch, of which every step takes `batch`, over all processes."""

    images: int
    batch: int

    def steps(self, epochs: float) -> int:
        """Whole steps in so many epochs."""
        return int(epochs * self.images / self.batch)

    def epoch(self, step: int) -> float:
        """How many times the data have been seen after so many steps."""
        return step * self.batch / self.images

    def steps_done(self, epoch: float) -> int:
        """The inverse: after how many steps the data have been seen so many times."""
        return round(epoch * self.images / self.batch)

    def warmup_steps(self, epochs: float) -> int:
        """Counted in whole steps per epoch."""
        return int(epochs * (self.images // self.batch)) if self.images >= self.batch else self.steps(epochs)
