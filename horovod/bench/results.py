"""What was measured, as data."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from horovod import __version__
from horovod.bench.measure import Summary


@dataclass(frozen=True)
class Row:
    """One operation at one size. `size` is in bytes: of an allgather's result, else of a rank's tensors."""

    benchmark: str
    operation: str
    np: int
    dtype: str
    size: int
    tensors: int
    time: Summary
    memcpy: Summary | None = None  # None where copying is not what takes the time

    @property
    def algorithm_bandwidth(self) -> float:
        """Bytes per second as the caller sees it."""
        return self.size / self.time.p50

    @property
    def bus_bandwidth(self) -> float:
        """Bytes per second that each rank must at least send, or receive: comparable between numbers of
        ranks and between operations."""
        share = (self.np - 1) / self.np
        factors = {"allreduce": 2 * share, "allgather": share, "broadcast": 1.0 if self.np > 1 else 0.0}
        return self.algorithm_bandwidth * factors.get(self.operation, 0.0)

    @property
    def memcpy_ratio(self) -> float | None:
        """How many times as long as copying the same bytes."""
        return self.time.p50 / self.memcpy.p50 if self.memcpy is not None else None

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "algorithm_bandwidth": self.algorithm_bandwidth,
            "bus_bandwidth": self.bus_bandwidth,
            "memcpy_ratio": self.memcpy_ratio,
        }


def cpu_model() -> str:
    """The processor's name, as far as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "horovod": __version__,
        "transport": os.environ.get("HOROVOD_TRANSPORT", "auto"),
    }
