"""What the parts of a step are, as optimizers and loaders know it: for the timeline and the metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from horovod import _core
from horovod.common.session import state

DATA = b"data"


def mark_step() -> None:
    """A step ends. Does nothing where Horovod is not initialized."""
    session = state.session
    if session is not None:
        session.engine.mark(b"step", _core.MARK_STEP)


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
