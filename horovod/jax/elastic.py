"""Elastic training with JAX: `@hvd.elastic.run` around a training function, and its state.

For example `hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, weights=weights, epoch=0)`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from horovod.common import elastic as _elastic
from horovod.common.elastic import ObjectState, State
from horovod.errors import HorovodInternalError

__all__ = ["ObjectState", "State", "run"]

P = ParamSpec("P")
R = TypeVar("R")

# As csrc/adapters/jax writes them.
_OURS = re.compile(r"Horovod (allreduce|allgather|broadcast|alltoall|reducescatter|barrier|join)\b.*: ")


def run(func: Callable[P, R]) -> Callable[P, R]:
    """Makes `func(state, ...)` go on when ranks come, go or fail; see docs/elastic.md."""
    return _elastic.run(func, _translated)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Failures of collectives within compiled programs, for which JAX has errors of its own."""
    try:
        yield
    except HorovodInternalError:
        raise
    except (RuntimeError, ValueError) as error:
        if not _OURS.search(str(error)):
            raise
        raise HorovodInternalError(str(error)) from error
