"""SIGTERM to a worker of an elastic job: a warning that its machine will be taken away.

The launcher is told, and takes the worker out of the job in order, at the next commit. But the
launcher ends jobs with the same signal: then, or if it can't be told, it is what it always was.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from horovod._bootstrap.notices import NoticeClient

_libc = ctypes.CDLL(None)
_libc.signal.restype = ctypes.c_void_p
_libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]


SAME_SIGNAL = 1.0  # seconds in which it counts once


class _Warning:
    def __init__(self) -> None:
        self.client: NoticeClient | None = None
        self.seconds = 0.0  # that a warning leaves, as the launcher was told
        self.given = False  # SIGTERM has come
        self.given_at = 0.0
        self.ending = False  # the launcher ends this worker


_warning = _Warning()


def install(client: NoticeClient, seconds: float) -> None:
    """Does nothing if the user handles SIGTERM, or in another thread than the main one."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        _warning.client, _warning.seconds = client, seconds
        signal.signal(signal.SIGTERM, _on_sigterm)


def job_is_ending() -> None:
    """The launcher ends this worker; in any thread.

    From now on the signal needs no handler: Python runs none while the main thread is in a call of
    C that lasts, or on its way out.
    """
    _warning.ending = True
    if _warning.client is not None and signal.getsignal(signal.SIGTERM) is _on_sigterm:
        _libc.signal(signal.SIGTERM, None)
        if _warning.given:
            _end()


def after_fork_in_child() -> None:
    """A data loader that is told to end ends."""
    _warning.client = None
    if signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    client = _warning.client
    now = time.monotonic()
    if _warning.given and not _warning.ending and now < _warning.given_at + SAME_SIGNAL:
        return
    repeated, _warning.given, _warning.given_at = _warning.given, True, now
    if repeated or _warning.ending or client is None or not client.connected:
        _end()
        return
    client.send({"type": "leaving", "seconds": _warning.seconds})


def _end() -> None:
    """What the signal does by default. Not through Python, whose main thread may be busy."""
    _libc.signal(signal.SIGTERM, None)
    os.kill(os.getpid(), signal.SIGTERM)
