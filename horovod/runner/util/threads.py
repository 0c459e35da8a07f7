"""Functions that run in threads of their own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls ``target(*args)`` in a new thread, which is returned running.

    ``silent`` hides its exceptions.
    """
    _check(args)

    def work() -> None:
        with contextlib.suppress(*([Exception] if silent else [])):
            target(*args)

    thread = threading.Thread(target=work, name=name, daemon=daemon)
    thread.start()
    return thread


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any] | None:
    """Calls ``fn`` with each of the arguments, in threads; the results by their places in the list.

    None without ``block_until_all_done``. The first exception, in their order, is raised.
    """
    with_places = list(enumerate(args_list))
    pool = ThreadPoolExecutor(max(1, min(max_concurrent_executions, len(with_places))))
    results = {place: pool.submit(fn, *args) for place, args in with_places}
    pool.shutdown(wait=block_until_all_done)
    return {place: each.result() for place, each in results.items()} if block_until_all_done else None


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls ``func(*args)`` in a thread once ``event`` is set, unless ``stop`` is set before."""
    _check(args)

    def wait_and_call() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        func(*args)

    return in_thread(wait_and_call, daemon=daemon, silent=silent)


def _check(args: object) -> None:
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args).__name__}: for one argument write (x,)")
