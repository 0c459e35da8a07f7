"""`--tune`: the search of HOROVOD_AUTOTUNE on ResNet-50's gradients, for the profile that it leaves."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

import horovod.numpy as hvd
from horovod.bench import resnet50

_CHECK_EVERY = 10  # steps between two questions whether it is over
_MOST_SECONDS = 300.0  # longer than the search takes by itself


def prepare() -> None:
    """Before hvd.init()."""
    os.environ["HOROVOD_AUTOTUNE"] = "1"


def run(seconds: float = _MOST_SECONDS) -> dict[str, Any]:
    """Steps until the search is over or so much time is; on rank 0, what hvd.metrics() tells of it."""
    gradients = {f"tune.{name}": np.zeros(shape, np.float32) for name, shape in resnet50.gradients()}
    end = time.monotonic() + seconds
    while True:
        for _ in range(_CHECK_EVERY):
            for handle in [hvd.allreduce_async_(each, name=name) for name, each in gradients.items()]:
                hvd.synchronize(handle)
        found = hvd.metrics().get("tuning", {})
        assert isinstance(found, dict)
        # Rank 0 decides for all: only it knows.
        over = np.array([found.get("state") != "searching" or time.monotonic() > end])
        if hvd.broadcast(over, 0, name="tune.over")[0]:
            return found


def verdict(found: dict[str, Any]) -> str:
    """What has come of it; the search itself tells the figures on stderr."""
    if "profile" in found:
        return f"Kept for the next job with --autotune: {found['profile']}"
    if found["state"] == "finished":
        return "Nothing is kept: the defaults are as good, or HOROVOD_AUTOTUNE_PROFILE is off."
    return "Nothing is kept: the search has not ended."
