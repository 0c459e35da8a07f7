"""The end of a step, as optimizers know it: for the timeline, the metrics and the tuning."""

from __future__ import annotations

from horovod import _core
from horovod.common.session import state


def mark_step() -> None:
    """Does nothing where Horovod is not initialized."""
    session = state.session
    if session is not None:
        session.engine.mark(b"step", _core.MARK_STEP)
