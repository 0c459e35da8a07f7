"""An iterator whose items are made by a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from horovod.common.steps import waiting_for_data

_logger = logging.getLogger("horovod.data")

_LOOK_SECONDS = 1.0  # between two looks whether the thread is still there
_STOP_SECONDS = 5.0  # for the thread to come back from making an item


class Background:
    """Makes up to `capacity` items ahead, from the beginning of the loop over it until its end or stop().

    For one loop; stop() may be called from any thread, also before the loop begins.
    """

    def __init__(self, make: Callable[[], Iterable[Any]], capacity: int, name: str) -> None:
        self._make = make
        self._capacity = capacity
        self._items: deque[Any] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._finished = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"hvd-data-{name}", daemon=True)

    @property
    def waiting(self) -> int:
        """How many items are ready."""
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        with self._changed:
            if not self._stopped:
                self._thread.start()
        return self

    def __next__(self) -> Any:
        with self._changed:
            if not self._items:
                with waiting_for_data():
                    self._wait_for_item()
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def _wait_for_item(self) -> None:
        """With the lock."""
        while not self._items:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._finished or self._stopped:
                raise StopIteration
            if not self._thread.is_alive():
                raise RuntimeError(
                    f"the loading thread {self._thread.name} is gone: was this process forked in the "
                    "midst of a pass? Begin the pass after the fork"
                )
            self._changed.wait(_LOOK_SECONDS)

    def stop(self) -> None:
        """Ends the thread, once it has made the item that it is at. Items that are ready are dropped."""
        with self._changed:
            self._stopped = True
            self._items.clear()
            self._changed.notify_all()
        if self._thread.ident is None or self._thread is threading.current_thread():
            return
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            _logger.warning(
                "%s has not come back from loading for %g s; it does not keep the program from ending",
                self._thread.name,
                _STOP_SECONDS,
            )

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._make():
                if not self._put(item):
                    break
        except BaseException as caught:
            error = caught
        with self._changed:
            self._error = error
            self._finished = True
            self._changed.notify_all()

    def _put(self, item: Any) -> bool:
        """Waits for room; False if nobody wants more."""
        with self._changed:
            while len(self._items) >= self._capacity and not self._stopped:
                self._changed.wait(_LOOK_SECONDS)
            if self._stopped:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True
