"""What the API offers beyond the bare collectives. Needs at least two ranks, and dynamic process sets."""

from __future__ import annotations

import threading

import numpy as np
import psutil
from util_expect import raises, skip

import horovod.numpy as hvd
from horovod.common.arrays import Array, ArrayAdapter


def check_place() -> None:
    assert 0 <= hvd.rank() < hvd.size() and hvd.local_rank() == hvd.rank() and hvd.local_size() == hvd.size()
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1) and hvd.is_homogeneous()
    assert hvd.gloo_built() and hvd.gloo_enabled() and not hvd.mpi_enabled()
    assert hvd.nccl_built() == 0 and type(hvd.nccl_built()) is int
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)
    with raises(ValueError, "MPI"):
        hvd.mpi_threads_supported()
    with raises(ValueError, "HOROVOD_TIMELINE"):
        hvd.start_timeline("/tmp/never-written.json")
    hvd.stop_timeline()


def check_scalars_and_sequences() -> None:
    total = hvd.allreduce(1.5, op=hvd.Sum)
    assert total.shape == () and total.dtype == np.float64 and total == 1.5 * hvd.size()
    assert hvd.allreduce([1, 2], op=hvd.Sum).tolist() == [hvd.size(), 2 * hvd.size()]
    assert hvd.broadcast(hvd.rank() + 7, 1) == 8


def check_not_contiguous() -> None:
    base = np.arange(24.0).reshape(4, 6) + hvd.rank()
    view = base[::2, ::-1]
    expected = sum(np.arange(24.0).reshape(4, 6) + r for r in range(hvd.size()))[::2, ::-1]
    before = base.copy()
    np.testing.assert_array_equal(hvd.allreduce(view, op=hvd.Sum), expected)
    np.testing.assert_array_equal(base, before)
    assert hvd.allreduce_(view, op=hvd.Sum) is view
    np.testing.assert_array_equal(view, expected)
    np.testing.assert_array_equal(base[1::2], before[1::2])
    fortran = np.asfortranarray(before)
    np.testing.assert_array_equal(hvd.allgather(fortran)[:4], np.arange(24.0).reshape(4, 6))
    hvd.broadcast_(fortran, 0)
    np.testing.assert_array_equal(fortran, np.arange(24.0).reshape(4, 6))


def check_a_copy_is_made_once() -> None:
    view = np.ones((4, 6)).T
    copies: list[int] = []
    staged = ArrayAdapter.staged

    def counted(self: ArrayAdapter, tensor: Array) -> Array:
        made = staged(self, tensor)
        copies.extend([1] if made is not tensor else [])
        return made

    ArrayAdapter.staged = counted  # type: ignore[method-assign]
    try:
        for name in (None, "transposed"):
            assert hvd.allreduce(view, name=name, op=hvd.Sum)[0, 0] == hvd.size()
            hvd.synchronize(hvd.allreduce_async(view, name=name, op=hvd.Sum))
    finally:
        ArrayAdapter.staged = staged  # type: ignore[method-assign]
    assert len(copies) == 4


def check_unsupported_arrays() -> None:
    for array in (
        np.zeros(2, ">f4"),
        np.array(["a"]),
        np.array([None]),
        np.zeros(2, np.uint32),
        np.zeros(2, "M8[s]"),
    ):
        with raises(ValueError, "not supported", "bfloat16, float32"):
            hvd.allreduce(array)
    read_only = np.zeros(2)
    read_only.flags.writeable = False
    for wrong in (read_only, 1.0, [1.0]):
        with raises(ValueError, "writable"):
            hvd.allreduce_(wrong)  # type: ignore[arg-type]
    with raises(ValueError, "op must be"):
        hvd.allreduce(np.ones(1), op=17)
    hvd.allreduce(read_only)


def check_not_ready_before_the_others() -> None:
    hvd.barrier()
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(np.ones(3), name="late")
        for _ in range(100):
            assert not hvd.poll(handle)
        hvd.broadcast(np.zeros(1), 0, name="now")
        assert hvd.synchronize(handle)[0] == 1
    else:
        hvd.broadcast(np.zeros(1), 0, name="now")
        hvd.allreduce(np.ones(3), name="late")


def check_inputs_are_kept_alive() -> None:
    handles = [hvd.allreduce_async(np.full(50_000, hvd.rank() + 1.0), op=hvd.Sum) for _ in range(50)]
    outputs = [hvd.synchronize(handle) for handle in handles]
    for output in outputs:
        assert (output == hvd.size() * (hvd.size() + 1) / 2).all()
    gathered = [hvd.allgather(np.full(1000, float(i))) for i in range(50)]
    for i, array in enumerate(gathered):
        assert (array == i).all() and array.flags.writeable


def check_memory_is_returned() -> None:
    """Outputs that the engine allocated are freed with the last array on them."""
    process = psutil.Process()
    array = np.ones(64 * 1024)

    def rounds(count: int) -> int:
        for _ in range(count):
            view = hvd.allgather(array)[10:20]
            hvd.synchronize(hvd.alltoall_async(array[: 1000 * hvd.size()]))
            assert view[0] == 1
        return process.memory_info().rss

    before = rounds(20)
    assert rounds(200) - before < 16 << 20  # 200 outputs would be 100 MiB per rank and more


def check_objects() -> None:
    mine = {"rank": hvd.rank(), "blob": b"x" * (100 * hvd.rank())}
    assert hvd.allgather_object(mine) == [{"rank": r, "blob": b"x" * (100 * r)} for r in range(hvd.size())]
    assert hvd.broadcast_object(mine if hvd.rank() == 1 else None, 1)["rank"] == 1
    assert hvd.broadcast_object(lambda x: x + 1, 0, name="function")(1) == 2
    own = object() if hvd.rank() == 0 else 5
    assert type(hvd.broadcast_object(own, 0)) is object
    unpicklable = threading.Lock()
    if hvd.rank() == 0:
        with raises(TypeError, "pickle"):
            hvd.broadcast_object(unpicklable, 0)
        with raises(TypeError, "pickle"):
            hvd.allgather_object(unpicklable)
    else:
        with raises(hvd.HorovodInternalError, "rank 0 could not pickle"):
            hvd.broadcast_object(None, 0)
        with raises(hvd.HorovodInternalError, "rank 0 could not pickle"):
            hvd.allgather_object("fine")
    assert len(hvd.allgather_object(np.zeros(300_000))) == hvd.size()


def check_broadcast_parameters() -> None:
    arrays = {name: np.full(3, float(hvd.rank())) for name in ("b", "a")}
    hvd.broadcast_parameters(arrays, 1)
    assert arrays["a"][0] == 1 and arrays["b"][0] == 1
    plain = [np.full(3, float(hvd.rank())) for _ in range(3)]
    hvd.broadcast_parameters(plain, 0)
    assert all(array[0] == 0 for array in plain)
    named = np.full(2, float(hvd.rank()))
    hvd.broadcast_parameters(iter([("named", named)]), 1)
    assert named[0] == 1
    for wrong in (5, "abc", np.zeros(3)):
        with raises(ValueError, "params"):
            hvd.broadcast_parameters(wrong, 0)  # type: ignore[arg-type]


def check_join() -> None:
    # Rank r has r + 1 batches; who has none left adds nothing but counts in the average.
    for batch in range(hvd.rank() + 1):
        result = hvd.allreduce(np.full(5, 6.0), name=f"batch {batch}")
        assert np.allclose(result, 6.0 * (hvd.size() - batch) / hvd.size()), (batch, result)
    last = hvd.join()
    assert 0 <= last < hvd.size()
    assert hvd.allgather_object(last) == [last] * hvd.size()
    # The last rank joins after all others have, which it knows from its allreduce without them.
    assert last == hvd.size() - 1


def check_only_allreduce_while_joined() -> None:
    if hvd.rank() == 0:
        hvd.join()
        return
    for call in (
        lambda: hvd.allgather(np.ones(2), name="joined gather"),
        lambda: hvd.broadcast(np.ones(2), 1, name="joined broadcast"),
        lambda: hvd.alltoall(np.ones(hvd.size()), name="joined alltoall"),
        lambda: hvd.reducescatter(np.ones(hvd.size()), name="joined scatter"),
    ):
        with raises(hvd.HorovodInternalError, "joined"):
            call()
    assert hvd.allreduce(np.ones(1), name="joined reduce", op=hvd.Sum)[0] == hvd.size() - 1
    hvd.join()


def check_process_sets() -> None:
    rank, size = hvd.rank(), hvd.size()
    everyone = list(range(size))
    assert hvd.global_process_set.ranks == everyone and hvd.global_process_set.process_set_id == 0
    assert hvd.global_process_set.size() == size and hvd.global_process_set.rank() == rank
    last = hvd.ProcessSet([size - 1])
    assert last.size() is None and last.rank() is None and last.included() == (rank == size - 1)
    with raises(ValueError, "not registered"):
        hvd.allreduce(np.ones(1), process_set=last)
    assert not hvd.remove_process_set(last) and not hvd.remove_process_set(hvd.global_process_set)
    assert hvd.add_process_set(last) is last and last.process_set_id == 1
    assert str(last) == f"ProcessSet(process_set_id=1, ranks=[{size - 1}], mpi_comm=None)"
    first = hvd.add_process_set([0])
    assert first.process_set_id == 2
    for duplicate in (everyone, [0], hvd.ProcessSet([size - 1]), reversed(everyone)):
        with raises(ValueError, "same ranks"):
            hvd.add_process_set(duplicate)
    for wrong in ([], [size], [-1], [0, 0], ["a"], 5):
        with raises(ValueError):
            hvd.add_process_set(wrong)
    if rank == 0:
        assert first.included() and first.rank() == 0 and first.size() == 1
        assert hvd.allreduce(np.full(2, 5.0), process_set=first).tolist() == [5, 5]
    if rank == size - 1:
        result = hvd.allreduce(np.full(2, 3.0), process_set=last)
        assert result.tolist() == [3, 3]
        with raises(ValueError, "0"):
            hvd.broadcast(np.ones(1), 0, process_set=last)
        assert hvd.broadcast(np.full(1, 4.0), rank, process_set=last)[0] == 4
        assert hvd.allgather_object("me", process_set=last) == ["me"]
        hvd.barrier(last)
    else:
        with raises(ValueError):
            last.rank()
        with raises(ValueError):
            hvd.allreduce(np.ones(1), process_set=last)
    assert hvd.remove_process_set(last) and last.process_set_id is None
    assert not hvd.remove_process_set(last)
    # The lowest free id is used again, and the object too.
    assert hvd.add_process_set(last).process_set_id == 1
    assert hvd.remove_process_set(last) and hvd.remove_process_set(first)
    from horovod.common.basics import _basics

    assert _basics._get_process_set_ids_and_ranks() == {0: everyone}


def check_overlapping_process_sets() -> None:
    size, rank = hvd.size(), hvd.rank()
    if size < 3:
        skip("needs three ranks")
    low, high = hvd.add_process_set(range(size - 1)), hvd.add_process_set(range(1, size))
    handles = []
    for i in range(20):
        for process_set in (low, high) if rank % 2 else (high, low):
            if process_set.included():
                handles.append(
                    (
                        process_set,
                        hvd.allreduce_async(
                            np.full(100 * i, 1.0 + rank),
                            name=f"step {i}",
                            op=hvd.Sum,
                            process_set=process_set,
                        ),
                    )
                )
    for process_set, handle in handles:
        assert (hvd.synchronize(handle) == sum(1.0 + r for r in process_set.ranks or ())).all()
    if high.included():
        assert hvd.allgather(np.array([rank]), process_set=high).tolist() == list(range(1, size))
        assert hvd.broadcast(np.array([rank]), size - 1, process_set=high)[0] == size - 1
        mine = np.arange(size - 1) * 10 + rank
        assert hvd.alltoall(mine, process_set=high).tolist() == [10 * (rank - 1) + r for r in range(1, size)]
        assert hvd.reducescatter(np.ones(size - 1), op=hvd.Sum, process_set=high).tolist() == [size - 1]
        assert hvd.allreduce(np.array([float(rank)]), process_set=high)[0] == np.mean(np.arange(1, size))
    hvd.barrier()
    assert hvd.remove_process_set(low) and hvd.remove_process_set(high)


def check_un_named_calls_in_sets_of_some_ranks() -> None:
    # Calls within a set must not disturb the matching of un-named calls of all ranks.
    one = hvd.add_process_set([0])
    if hvd.rank() == 0:
        for _ in range(3):
            hvd.allreduce(np.ones(1), process_set=one)
    assert hvd.allreduce(np.ones(1), op=hvd.Sum)[0] == hvd.size()
    hvd.remove_process_set(one)


def check_barrier() -> None:
    for _ in range(20):
        hvd.barrier()
