"""How a victim ends itself."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

from fault_notes import Notes


class FaultError(Exception):
    """What a victim raises."""


def end(how: str, notes: Notes, **facts: object) -> None:
    """Notes the time of death and ends this process; returns only if it was stopped and continued."""
    if how == "SIGSEGV":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    notes.write("fault", **facts)
    if how == "exception":
        raise FaultError("the victim's own error")
    if how == "exit0":
        os._exit(0)
    if how == "SIGSEGV":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.Signals[how])
