"""Elastic training with numpy: `@hvd.elastic.run` around a training function, and its state.

For example `hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, weights=weights, epoch=0)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from horovod.common import elastic as _elastic
from horovod.common.elastic import ObjectState, State

__all__ = ["ObjectState", "State", "run"]

P = ParamSpec("P")
R = TypeVar("R")


def run(func: Callable[P, R]) -> Callable[P, R]:
    """Makes `func(state, ...)` go on when ranks come, go or fail; see docs/elastic.md."""
    return _elastic.run(func)
