"""horovod.data: loading in a thread."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader


class Loader(BaseDataLoader):
    """Numbers; notes in which thread it loads and what was begun."""

    def __init__(self, count: int, fail_at: int | None = None) -> None:
        self.count, self.fail_at = count, fail_at
        self.begun: list[int] = []
        self.threads: set[threading.Thread] = set()
        self.closed = 0

    def __len__(self) -> int:
        return self.count

    def _iterate(self) -> Iterator[int]:
        try:
            for i in range(self.count):
                self.begun.append(i)
                self.threads.add(threading.current_thread())
                if i == self.fail_at:
                    raise OSError(f"batch {i} can't be read")
                yield i
        finally:
            self.closed += 1

    def _process_batch(self, batch: int) -> tuple[int, threading.Thread]:
        return batch * 10, threading.current_thread()


class AsyncLoader(AsyncDataLoaderMixin, Loader):
    pass


def loading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("hvd-data-")]


def eventually(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_plain_loader() -> None:
    here = threading.current_thread()
    assert list(Loader(3)) == [(0, here), (10, here), (20, here)] and len(Loader(3)) == 3
    with pytest.raises(NotImplementedError, match="_iterate"):
        next(iter(BaseDataLoader()))
    with pytest.raises(NotImplementedError, match="__len__"):
        len(BaseDataLoader())


@pytest.mark.parametrize("size", [0, 1, 64])
def test_same_batches_pass_after_pass(size: int) -> None:
    here = threading.current_thread()
    loader = AsyncLoader(size, False, 20)
    assert len(loader) == 20
    for _ in range(3):
        assert list(loader) == [(10 * i, here) for i in range(20)]
    assert (here in loader.threads) == (size == 0) and loader.closed == 3
    assert not loading_threads()


def test_loads_ahead_but_not_too_far() -> None:
    loader = AsyncLoader(async_loader_queue_size=4, count=100)
    batches = iter(loader)
    assert next(batches)[0] == 0
    # Four wait, and one has been made that there is no room for.
    eventually(lambda: len(loader.begun) == 6)
    assert next(batches)[0] == 10
    eventually(lambda: len(loader.begun) == 7)
    batches.close()  # type: ignore[attr-defined]


def test_leaving_a_loop_ends_its_thread() -> None:
    loader = AsyncLoader(2, False, 1000)
    for batch, _ in loader:
        if batch == 50:
            break
    assert not loading_threads() and loader.closed == 1 and len(loader.begun) < 20
    assert next(iter(loader))[0] == 0  # the next pass begins at the beginning
    with pytest.raises(ZeroDivisionError):
        for _ in loader:
            raise ZeroDivisionError
    assert not loading_threads()


def test_errors_of_the_thread_arrive_in_the_loop() -> None:
    for size in (0, 1, 64):
        loader = AsyncLoader(size, False, 10, fail_at=3)
        seen = []
        with pytest.raises(OSError, match="batch 3"):
            for batch, _ in loader:
                seen.append(batch)
        assert seen == [0, 10, 20] and not loading_threads()


def test_close() -> None:
    loader = AsyncLoader(2, False, 1000)
    batches = iter(loader)
    next(batches)
    loader.close_async_loader()
    loader.close_async_loader()
    assert list(batches) == [] and not loading_threads()
    assert len(list(AsyncLoader(2, False, 5))) == 5


def test_close_while_the_loop_waits() -> None:
    class Stuck(AsyncDataLoaderMixin, BaseDataLoader):
        def __len__(self) -> int:
            return 1

        def _iterate(self) -> Iterator[int]:
            go_on.wait(60)
            yield 1

    go_on = threading.Event()
    loader = Stuck()
    results: list[Any] = []
    consumer = threading.Thread(target=lambda: results.append(list(loader)))
    consumer.start()
    eventually(loading_threads)
    threading.Timer(0.2, go_on.set).start()
    loader.close_async_loader()
    consumer.join(60)
    assert results == [[]]


def test_two_loops_at_once() -> None:
    loader = AsyncLoader(3, False, 50)
    assert [(a, b) for (a, _), (b, _) in zip(loader, loader, strict=True)] == [
        (10 * i, 10 * i) for i in range(50)
    ]


def test_debug_messages_are_logged(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "horovod.data"):
        list(AsyncLoader(4, True, 3))
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        f"AsyncLoader: batch {i}" for i in range(3)
    ]
    assert capsys.readouterr().out == ""


def test_negative_queue_size() -> None:
    with pytest.raises(ValueError, match="async_loader_queue_size"):
        AsyncLoader(-1, False, 3)


def test_a_fork_in_the_midst_of_a_pass() -> None:
    batches = iter(AsyncLoader(1, False, 10))
    next(batches)
    eventually(lambda: loading_threads())
    child = os.fork()
    if child == 0:
        try:
            list(batches)  # what was ready, then the thread is missed
        except RuntimeError as error:
            os._exit(7 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(list(batches)) == 9


def test_around_a_torch_data_loader() -> None:
    torch = pytest.importorskip("torch")

    class Batches(BaseDataLoader):
        def __init__(self, loader: Any) -> None:
            self.loader = loader

        def __len__(self) -> int:
            return len(self.loader)

        def _iterate(self) -> Iterator[Any]:
            yield from self.loader

        def _process_batch(self, batch: Any) -> Any:
            return [tensor * 2 for tensor in batch]

    class AsyncBatches(AsyncDataLoaderMixin, Batches):
        pass

    x = torch.arange(40.0).reshape(20, 2)
    dataset = torch.utils.data.TensorDataset(x, x.sum(1))
    for workers in (0, 1):
        loader = torch.utils.data.DataLoader(dataset, batch_size=6, num_workers=workers)
        batches = list(AsyncBatches(2, False, loader))
        assert len(batches) == len(AsyncBatches(loader=loader)) == 4
        assert torch.equal(torch.cat([a for a, _ in batches]), 2 * x)
        assert torch.equal(torch.cat([b for _, b in batches]), 2 * x.sum(1))
