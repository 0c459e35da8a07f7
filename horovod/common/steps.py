"""What the parts of a step are, as optimizers, tapes and loaders know it: for the timeline, the metrics and
the search for parameters.

All that reduces gradients says when a step has ended, and which kind of step it was. csrc/engine/step_ends.h
decides what counts.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator

from horovod import _core
from horovod.common.session import state

DATA = b"data"


def end_step(kind: int) -> None:
    """A step of this kind ends. Does nothing where Horovod is not initialized."""
    session = state.session
    if session is not None:
        session.engine.end_step(kind)


def kind_named(name: str) -> int:
    """The kind of step that has this name: in every run the same, as compiled programs are kept, and of 31
    bits, not 0."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFF or 1


def waiting_for_data() -> contextlib.AbstractContextManager[None]:
    """What happens within is waiting for input."""
    session = state.session
    return contextlib.nullcontext() if session is None else marked(session.engine, DATA)


@contextlib.contextmanager
def marked(engine: _core.Engine, name: bytes) -> Iterator[None]:
    """A bar in the timeline of all ranks, if there is one."""
    engine.mark(name, _core.MARK_BEGIN)
    try:
        yield
    finally:
        engine.mark(name, _core.MARK_END)
