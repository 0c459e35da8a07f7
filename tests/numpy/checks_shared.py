"""Arrays in memory that the ranks of a host reach of each other: hvd.empty()."""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path

import numpy as np
import psutil

import horovod.numpy as hvd
from horovod.common.session import for_collective

SHARED = os.environ["HOROVOD_TRANSPORT"] == "shm"
COUNT = 1 << 18  # float32: enough to be combined where it is


def in_shared_memory(array: np.ndarray) -> bool:
    """By what the kernel says is mapped there."""
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(each, 16) for each in line.split()[0].split("-"))
        if begin <= address < end:
            return "memfd:horovod" in line
    return False


def filled(count: int = COUNT) -> np.ndarray:
    array = hvd.empty(count)
    array[:] = np.arange(count) % 7 + hvd.rank()
    return array


def summed(count: int = COUNT) -> np.ndarray:
    ranks = range(hvd.size())
    return sum((np.arange(count) % 7 + rank for rank in ranks), np.zeros(count)).astype(np.float32)


def resident() -> int:
    """Bytes of shared memory that this process has touched."""
    return int(psutil.Process().memory_info().shared)


def check_shapes_and_types() -> None:
    for shape in ((), 0, 5, np.int64(6), (2, 0, 3), (3, 4), [7]):
        for dtype in (np.float32, "int8", np.complex128, bool):
            array = hvd.empty(shape, dtype)
            assert array.dtype == np.dtype(dtype) and array.shape == np.empty(shape).shape
            assert array.flags.writeable and array.flags.c_contiguous
    assert hvd.empty(3).dtype == np.float32
    # Sizes of numpy's, alone, in an array, and with a product that is none of theirs.
    assert hvd.empty(np.int64(5)).shape == (5,) and hvd.empty(np.array([3, 4])).shape == (3, 4)
    assert hvd.empty(np.array([1 << 16, 1 << 15], np.int32), np.int8).size == 1 << 31
    assert in_shared_memory(hvd.empty(3)) == SHARED


def check_sums() -> None:
    array = filled()
    assert hvd.allreduce_(array, name="shared", op=hvd.Sum) is array
    np.testing.assert_array_equal(array, summed())
    array = filled()
    result = hvd.allreduce(array, name="shared, to other memory", op=hvd.Sum)
    np.testing.assert_array_equal(result, summed())
    np.testing.assert_array_equal(array, np.arange(COUNT) % 7 + hvd.rank())
    # Views, in a group, and those of one rank only.
    left, right = np.split(filled(2 * COUNT), [COUNT + 5])
    hvd.grouped_allreduce_([left, right], name="views", op=hvd.Sum)
    np.testing.assert_array_equal(np.concatenate([left, right]), summed(2 * COUNT))
    mine = filled() if hvd.rank() == 0 else np.array(filled())
    hvd.allreduce_(mine, name="of one", op=hvd.Sum)
    np.testing.assert_array_equal(mine, summed())


def check_memory_comes_back() -> None:
    before = resident()
    for _ in range(50):
        array = hvd.empty(8 << 20, np.uint8)
        array[:] = 1
        del array
    gc.collect()
    assert resident() - before < 64 << 20


def check_a_forked_child_takes_nothing_back() -> None:
    array = filled()
    child = os.fork()
    if child == 0:
        del array
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(array, np.arange(COUNT) % 7 + hvd.rank())
    hvd.allreduce_(array, name="after a fork", op=hvd.Sum)
    np.testing.assert_array_equal(array, summed())


def check_arrays_outlive_their_world() -> None:
    array = filled()
    hvd.shutdown()
    array += 1
    hvd.init()
    hvd.allreduce_(array, name="of another world", op=hvd.Sum)
    np.testing.assert_array_equal(array, summed() + hvd.size())
    assert in_shared_memory(filled()) == SHARED
    check_sums()


def check_too_much_is_ordinary_memory() -> None:
    """More than there is room for is had elsewhere, as far as the system has it."""
    allocate = for_collective().engine.allocate_shared
    assert allocate(1 << 60) is None
    all_of_it = []
    for size in (1 << power for power in range(36, 15, -1)):  # whole pages: nothing smaller is left
        while (memory := allocate(size)) is not None:
            all_of_it.append(memory)
    assert bool(all_of_it) == SHARED
    array = filled()
    assert not in_shared_memory(array)
    hvd.allreduce_(array, name="no room", op=hvd.Sum)
    np.testing.assert_array_equal(array, summed())
    all_of_it.clear()
    del memory
    assert in_shared_memory(filled()) == SHARED


def check_a_rank_without_addresses_for_it() -> None:
    """One rank's are limited: what would fit is not to take them from the application, either."""
    rank = hvd.rank()
    hvd.shutdown()
    before = resource.getrlimit(resource.RLIMIT_AS)
    if rank == 1:
        used = psutil.Process().memory_info().vms
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 40), before[1]))
    hvd.init()
    assert rank != 1 or psutil.Process().memory_info().vms < used + (8 << 30)
    array = filled()
    assert in_shared_memory(array) == (SHARED and rank != 1)
    hvd.allreduce_(array, name="without addresses", op=hvd.Sum)
    np.testing.assert_array_equal(array, summed())
    hvd.shutdown()
    resource.setrlimit(resource.RLIMIT_AS, before)
    hvd.init()


def check_files_may_be_limited() -> None:
    """Rank 0 makes the memory; where files must be small there is no room for tensors, and all else works."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    hvd.shutdown()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, before[1]))
    hvd.init()
    array = filled()
    assert not in_shared_memory(array)
    hvd.allreduce_(array, name="small files", op=hvd.Sum)
    np.testing.assert_array_equal(array, summed())
    hvd.shutdown()
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    hvd.init()
