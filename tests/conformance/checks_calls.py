"""What calls of every adapter have in common beside their results: compression, handles, names, threads."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from adapters import hvd
from util_expect import raises
from util_model import BFLOAT16


def check_compression() -> None:
    array = np.array([1.0 + 2**-12, 3.0], np.float32)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        for dtype in (np.float32, np.float64):
            result = hvd.allreduce(array.astype(dtype), compression=compression)
            assert result.dtype == dtype and result.tolist() == [1.0, 3.0]
        result = hvd.allreduce(np.array([5], np.int32), compression=compression, op=hvd.Max)
        assert result.dtype == np.int32 and result.tolist() == [5]
        pair = hvd.grouped_allreduce([array, np.array([7])], compression=compression)
        assert pair[0].dtype == np.float32 and pair[0].tolist() == [1.0, 3.0] and pair[1].dtype == np.int64
        rows = np.ones((hvd.size(), 2), np.float64)
        assert hvd.reducescatter(rows, compression=compression).dtype == np.float64
        assert hvd.grouped_reducescatter([rows], compression=compression)[0].dtype == np.float64
    assert hvd.allreduce(array, compression=hvd.Compression.none).tolist() == array.tolist()
    assert hvd.allreduce(array.astype(BFLOAT16)).dtype == BFLOAT16


@contextlib.contextmanager
def deprecations(count: int) -> Iterator[None]:
    """That many warnings, of the lines that called Horovod: here those of this directory."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert [entry.category for entry in caught] == [DeprecationWarning] * count, caught
    assert {Path(entry.filename).parent for entry in caught} == {Path(__file__).parent}, caught


def check_average_is_deprecated() -> None:
    ones = np.ones(1, np.float32)
    with raises(ValueError, "average"):
        hvd.allreduce(ones, average=True, op=hvd.Sum)
    with deprecations(3):
        assert hvd.allreduce(ones, average=False)[0] == hvd.size()
        assert hvd.allreduce(ones, average=True)[0] == 1
        assert hvd.grouped_allreduce([ones], average=False)[0][0] == hvd.size()


def check_average_is_deprecated_in_place() -> None:
    with deprecations(1):
        assert hvd.allreduce_(np.ones(1, np.float32), average=False)[0] == hvd.size()


def check_compression_of_ones_own() -> None:
    class Halves:
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            return tensor / 2, "half"

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            assert ctx == "half"
            return tensor * 2

    array = np.array([1.0 + 2**-12, 3.0], np.float32)
    assert hvd.allreduce(array, compression=Halves).tolist() == array.tolist()


def check_handles() -> None:
    handle = hvd.allreduce_async(np.ones(3), name="polled")
    assert type(handle) is int
    while not hvd.poll(handle):
        pass
    assert hvd.poll(handle)
    assert hvd.synchronize(handle).tolist() == [1, 1, 1]
    assert hvd.synchronize(handle) is None and hvd.synchronize(123456789) is None
    with raises(ValueError, str(handle)):
        hvd.poll(handle)


def check_duplicate_names() -> None:
    submit = hvd.allreduce_async  # an adapter without it leaves this out on all ranks
    hvd.barrier()
    if hvd.rank() == 0:
        handle = submit(np.ones(3), name="twice", op=hvd.Sum)
        with raises(ValueError, "twice"):
            submit(np.ones(3), name="twice", op=hvd.Sum)
        hvd.barrier()
    else:
        hvd.barrier()
        handle = submit(np.ones(3), name="twice", op=hvd.Sum)
    assert hvd.synchronize(handle)[0] == hvd.size()
    # Once done, the name is free.
    assert hvd.allreduce(np.ones(3), name="twice", op=hvd.Sum)[0] == hvd.size()


def check_threads() -> None:
    failures = []

    def work(number: int) -> None:
        try:
            for i in range(20):
                array = np.full(7, float(number))
                result = hvd.allreduce(array, name=f"thread {number} step {i}", op=hvd.Sum)
                assert (result == number * hvd.size()).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures
