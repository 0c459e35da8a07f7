"""How far a long preparation has come, on stderr."""

from __future__ import annotations

import sys
import time

INTERVAL = 10.0  # seconds between lines if nobody watches a terminal


class Progress:
    """One line that changes on a terminal; a line every ten seconds, and the last one, elsewhere."""

    def __init__(self, subset: str, shards: int) -> None:
        self._subset = subset
        self._shards = shards
        self._began = self._shown = time.monotonic()

    def show(self, done: int, images: int) -> None:
        """`images`: how many were written by this run."""
        now = time.monotonic()
        live = sys.stderr.isatty()
        if not live and now - self._shown < INTERVAL and done < self._shards:
            return
        self._shown = now
        speed = images / max(now - self._began, 1e-9)
        text = f"{self._subset}: {done} of {self._shards} shards, {images} images, {speed:.0f} images/s"
        print(
            f"\r{text}\x1b[K" if live else text,
            end="" if live and done < self._shards else "\n",
            file=sys.stderr,
        )
