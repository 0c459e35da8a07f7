"""Where this process stands, asked when the op runs; each is an int32 scalar."""

from __future__ import annotations

from typing import Any

from horovod.tensorflow import xla
from horovod.tensorflow.library import library

__all__ = ["local_rank_op", "local_size_op", "process_set_included_op", "rank_op", "size_op"]


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """The number of ranks when the op runs, as an int32 scalar."""
    xla.refuse_if_compiling("hvd.size_op()")
    return library.horovod_size(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 if this rank is in the set, 0 if not, -1 without hvd.init(), -3 if there is no such set."""
    xla.refuse_if_compiling("hvd.process_set_included_op()")
    return library.horovod_process_set_included(process_set_id=process_set_id, name=name)


def local_size_op(name: str | None = None) -> Any:
    """The number of ranks on this host."""
    xla.refuse_if_compiling("hvd.local_size_op()")
    return library.horovod_local_size(name=name)


def rank_op(name: str | None = None) -> Any:
    """This process's rank."""
    xla.refuse_if_compiling("hvd.rank_op()")
    return library.horovod_rank(name=name)


def local_rank_op(name: str | None = None) -> Any:
    """This process's rank among those of its host."""
    xla.refuse_if_compiling("hvd.local_rank_op()")
    return library.horovod_local_rank(name=name)
