"""A loader's interface, and a mixin that moves the loading to a thread."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from horovod.common.steps import waiting_for_data
from horovod.data.background import Background

_logger = logging.getLogger("horovod.data")
_END = object()  # of a pass


class BaseDataLoader:
    """Something to iterate over, pass after pass: implement __len__() and _iterate()."""

    def __len__(self) -> int:
        """The number of batches in a pass."""
        raise NotImplementedError(f"{type(self).__name__} must implement __len__()")

    def _iterate(self) -> Iterator[Any]:
        """The batches of one pass."""
        raise NotImplementedError(f"{type(self).__name__} must implement _iterate()")

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._iterate())
        while True:
            with waiting_for_data():
                batch = next(batches, _END)
            if batch is _END:
                return
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        """What the program gets for a batch; to be overridden. Called in the program's own thread."""
        return batch


class AsyncDataLoaderMixin:
    """Loads batches in a thread while the program computes: class Mine(AsyncDataLoaderMixin, MyLoader).

    A pass begins to be loaded when it is asked for, and stops being loaded when the program leaves the loop.
    An error of the loading thread is raised in the loop, after the batches that came before it.

    async_loader_queue_size: batches loaded ahead at most; 0: no thread, each is loaded when it is needed.
    debug_data_loader: log how many are waiting, at level INFO of the logger "horovod.data".
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        if async_loader_queue_size < 0:
            raise ValueError(f"async_loader_queue_size must not be negative, got {async_loader_queue_size}")
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._passes: set[Background] = set()
        super().__init__(*args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size == 0:
            yield from super().__iter__()  # type: ignore[misc]  # the loader comes next
            return
        batches = Background(self._iterate, self.async_loader_queue_size, type(self).__name__)  # type: ignore[attr-defined]
        self._passes.add(batches)
        try:
            for number, batch in enumerate(batches):
                if self.debug_data_loader:
                    _logger.info("%s: batch %d, %d waiting", type(self).__name__, number, batches.waiting)
                yield self._process_batch(batch)  # type: ignore[attr-defined]
        finally:
            self._passes.discard(batches)
            batches.stop()

    def close_async_loader(self) -> None:
        """Ends every pass that is under way, and its thread. The loader may be used again afterwards."""
        for batches in list(self._passes):
            batches.stop()
