"""Rank 0's own door for Prometheus, where HOROVOD_METRICS_ADDRESS asks for one."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import horovod
from horovod import _core
from horovod._figures.door import MetricsDoor, address_of, is_loopback
from horovod._figures.model import Model
from horovod._figures.private_files import state_directory, write_secret
from horovod._figures.prometheus import exposition
from horovod.common import metrics, observer
from horovod.common.session import state

VARIABLE = "HOROVOD_METRICS_ADDRESS"


def place_of(text: str) -> tuple[str, int]:
    """Address and port; ValueError if it is none."""
    return address_of(text, VARIABLE)


class Scrapes:
    """What is told to those who ask: the model is brought up to date then."""

    def __init__(self, engine: _core.Engine, transport: str, peers: Sequence[tuple[str, int]]) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._model = Model()
        now = time.time()
        started = {"event": "job_start", "time": now, "version": horovod.__version__, "np": len(peers)}
        self.event(started)
        self.event({"event": "world", "time": now, "transport": transport, "size": len(peers)})
        for rank, (host, pid) in enumerate(peers):
            self.event({"event": "rank_started", "time": now, "rank": rank, "host": host, "pid": pid})

    def event(self, event: dict[str, Any]) -> None:
        with self._lock:
            self._model.event(event)

    def text(self) -> str:
        """Prometheus'."""
        figures = metrics.figures(self._engine)
        with self._lock:
            now = time.time()
            self._model.summaries(now, figures["ranks"], figures["user"])
            return exposition(self._model.snapshot(now), figures["metrics"])


def opened(place: tuple[str, int], scrapes: Scrapes) -> Callable[[], None]:
    """Serves /metrics until what it returns is called. What can't be had costs a message, not the job."""
    address, port = place
    token = secrets.token_urlsafe(24)
    try:
        door = MetricsDoor(scrapes.text, token, address, port)
    except OSError as error:
        _say(f"no metrics at {VARIABLE}={address}:{port}: {error.strerror}")
        return lambda: None
    # Machines may share the directory.
    file = state_directory(os.environ) / "metrics" / f"{socket.gethostname()}-{door.port}.token"

    # Not the end of a generator: in a forked child that would run when the session is forgotten.
    def close() -> None:
        state.on_fork.remove(door.leave_to_parent)
        observer.forget(scrapes.event)
        door.close()
        with contextlib.suppress(OSError):
            file.unlink()

    observer.listen(scrapes.event)
    state.on_fork.append(door.leave_to_parent)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.unlink(missing_ok=True)
        write_secret(file, token)
    except OSError as error:
        _say(f"no metrics: {file}: {error.strerror}")
        close()
        return lambda: None
    if not is_loopback(address):
        _say("warning: others on the network can reach the metrics: they ask for the token, unencrypted")
    _say(f"metrics: {door.url.rpartition('/')[0]}/metrics, with the bearer token in {file}")
    return close


def _say(text: str) -> None:
    print(f"horovod: {text}", file=sys.stderr, flush=True)
