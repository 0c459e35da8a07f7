"""Every collective x dtype x size against what numpy computes in the promised order, bit for bit.

That order is: the ranks of each host, then the hosts. For every adapter: see adapters.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from adapters import hvd
from util_expect import cases, skip
from util_model import BFLOAT16, INTEGER, adasum, combined, dtype_of, groups, rows_of

INTEGERS = ["uint8", "int8", "uint16", "int16", "int32", "int64"]
ORDERED = [*INTEGERS, "float16", "bfloat16", "float32", "float64"]
NUMBERS = [*ORDERED, "complex64", "complex128"]
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (3,), (17,), (2, 3, 5), (4, 0, 2), (1021,)]
# Around 32 KiB, where the transports change their algorithm, and some MiB that are no multiple of anything.
EDGES = [(32 * 1024 // 4 + d,) for d in (-1, 0, 1)]
BIG = [((1 << 18) + 3,), ((3 << 18) + 1,)]


def data(rank: int, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> Any:
    """What `rank` contributes: every rank can compute everyone's."""
    random = np.random.default_rng([seed, rank, *shape, dtype.num % 97])
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)  # the whole range: sums wrap, averages must not
        return np.asarray(random.integers(info.min, info.max, shape, dtype, endpoint=True))
    if dtype.kind == "c":
        return np.asarray(random.normal(size=shape) + 1j * random.normal(size=shape)).astype(dtype)
    return np.asarray(random.normal(size=shape)).astype(dtype)


def everyone(
    shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0, ranks: list[int] | None = None
) -> list[Any]:
    return [data(rank, shape, dtype, seed) for rank in (range(hvd.size()) if ranks is None else ranks)]


def same(actual: Any, expected: Any, what: object) -> None:
    assert actual.dtype == expected.dtype, (what, actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    if actual.tobytes() != expected.tobytes():
        bad = np.flatnonzero((actual != expected).ravel())[:5]
        raise AssertionError((what, bad, actual.ravel()[bad], expected.ravel()[bad]))


def shapes(name: str) -> list[tuple[int, ...]]:
    """For a dtype: the large ones not with each of them."""
    edges = EDGES if name in ("float32", "float16", "int64") else []
    return SHAPES + edges + (BIG if name == "float32" else [])


@cases(*NUMBERS)
def check_allreduce_sum_and_average(name: str) -> None:
    for shape in shapes(name):
        arrays = everyone(shape, dtype_of(name))
        for op in (hvd.Sum, hvd.Average):
            result = hvd.allreduce(arrays[hvd.rank()], op=op)
            same(result, combined(op, arrays), ("allreduce", op, shape))


def check_allreduce_leaves_its_input_alone() -> None:
    array = data(hvd.rank(), (100,), np.dtype("float32"))
    before = array.copy()
    assert hvd.allreduce(array, op=hvd.Sum) is not array
    same(array, before, "input")


@cases(*ORDERED)
def check_allreduce_min_max_product(name: str) -> None:
    for shape in ((), (0,), (17,), (1021,), (20_001,)):
        arrays = everyone(shape, dtype_of(name), 1)
        for op in (hvd.Min, hvd.Max, hvd.Product):
            result = hvd.allreduce(arrays[hvd.rank()], op=op)
            same(result, combined(op, arrays), ("allreduce", op, shape))


def check_allreduce_bool() -> None:
    if not hvd.reduces_bool:
        skip("it does not reduce bool")
    for shape in ((), (0,), (1021,)):
        arrays = everyone(shape, np.dtype(bool), 2)
        for op in (hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
            same(hvd.allreduce(arrays[hvd.rank()], op=op), combined(op, arrays), ("bool", op, shape))


def check_integer_average_truncates_toward_zero() -> None:
    for total in (-5, 5, -1, 1, 2**53 + 1, -(2**53) - 1):
        array = np.array([total if hvd.rank() == 0 else 0], np.int64)
        expected = abs(total) // hvd.size() * (1 if total > 0 else -1)
        assert hvd.allreduce(array)[0] == expected, total


def check_average_of_equal_integers_is_that_integer() -> None:
    for dtype in INTEGER:
        info = np.iinfo(dtype)
        array = np.array([info.min, info.max, info.max - 1, 0, 1], dtype)
        same(hvd.allreduce(array), array, ("equal", dtype))
        rows = np.repeat(array[:2], hvd.size())
        share = rows[2 * hvd.rank() : 2 * hvd.rank() + 2]
        same(hvd.reducescatter(rows, op=hvd.Average), share, ("equal shares", dtype))
        together, _ = hvd.grouped_allreduce([array, np.ones(3, np.float32)])
        same(together, array, ("equal in a group", dtype))


def check_average_of_equal_integers_in_place() -> None:
    for dtype in INTEGER:
        info = np.iinfo(dtype)
        array = np.array([info.min, info.max, info.max - 1, 0, 1], dtype)
        copy = array.copy()
        hvd.grouped_allreduce_([copy, np.ones(3, np.float32)])
        same(copy, array, ("equal in a group", dtype))


def check_scale_factors() -> None:
    for dtype in (np.dtype("float32"), np.dtype("float64"), np.dtype("float16"), BFLOAT16):
        arrays = everyone((1021,), dtype, 3)
        result = hvd.allreduce(arrays[hvd.rank()], op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        halves = [(array.astype(np.float64) * 0.5).astype(dtype) for array in arrays]
        same(result, combined(hvd.Sum, halves, factor=4.0), ("scale", dtype))
    # Integers truncate at each step.
    result = hvd.allreduce(np.array([-3], np.int32), op=hvd.Sum, prescale_factor=0.5, postscale_factor=0.5)
    assert result[0] == int(-1 * hvd.size() * 0.5), result
    # Not in an average: its sum is exact.
    result = hvd.allreduce(np.full(2, 200, np.uint8), postscale_factor=0.5)
    assert result.tolist() == [100, 100], result
    result = hvd.allreduce(np.array([hvd.rank()], np.int32), postscale_factor=float(hvd.size()))
    assert result[0] == hvd.size() * (hvd.size() - 1) // 2, result


@cases("float32", "float16", "bfloat16", "int32", "int64")
def check_allreduce_in_place(name: str) -> None:
    for shape in shapes(name):
        arrays = everyone(shape, dtype_of(name), 4)
        mine = arrays[hvd.rank()].copy()
        assert hvd.allreduce_(mine, op=hvd.Sum) is mine
        same(mine, combined(hvd.Sum, arrays), ("in place", shape))


def check_adasum() -> None:
    size = hvd.size()
    if size & (size - 1):
        try:
            hvd.allreduce(np.ones(3, np.float32), op=hvd.Adasum)
        except NotImplementedError as error:
            assert str(size) in str(error)
            return
        raise AssertionError("Adasum accepted a number of ranks that is no power of two")

    arrays = everyone((10_007,), np.dtype("float64"), 5)
    result = hvd.allreduce(arrays[hvd.rank()], op=hvd.Adasum)
    np.testing.assert_allclose(result, adasum(arrays), rtol=1e-10)


def check_results_are_the_same_on_all_ranks() -> None:
    result = hvd.allreduce(data(hvd.rank(), (100_003,), np.dtype("float32"), 6))
    gathered = hvd.allgather(result[None])
    for other in gathered:
        same(other, result, "all ranks")


@cases(*NUMBERS, "bool")
def check_allgather(name: str) -> None:
    for trailing in ((), (3,), (2, 5), (0,)):
        # Rank 1 has no rows; with one rank there is just one row.
        rows = [0 if rank == 1 else 2 * rank + 1 for rank in range(hvd.size())]
        arrays = [data(rank, (n, *trailing), dtype_of(name), 7) for rank, n in enumerate(rows)]
        result = hvd.allgather(arrays[hvd.rank()])
        same(result, np.concatenate(arrays), ("allgather", trailing))


def check_allgather_of_much_and_of_nothing() -> None:
    for length in (8191, 8193, 300_001):
        arrays = everyone((length,), np.dtype("float32"), 8)
        same(hvd.allgather(arrays[hvd.rank()]), np.concatenate(arrays), ("allgather", length))
    empty = np.zeros((0, 4), np.float32)
    same(hvd.allgather(empty), empty, "allgather of nothing")


@cases(*NUMBERS, "bool")
def check_broadcast(name: str) -> None:
    dtype = dtype_of(name)
    for root in range(hvd.size()):
        for shape in shapes(name) if root == hvd.size() - 1 else [(17,)]:
            arrays = everyone(shape, dtype, 9)
            result = hvd.broadcast(arrays[hvd.rank()], root)
            same(result, arrays[root], ("broadcast", root, shape))
            same(arrays[hvd.rank()], data(hvd.rank(), shape, dtype, 9), "broadcast's input")


def check_broadcast_in_place() -> None:
    mine = data(hvd.rank(), (33,), np.dtype("float32"), 10)
    assert hvd.broadcast_(mine, 0) is mine
    same(mine, data(0, (33,), np.dtype("float32"), 10), "broadcast_")


@cases(*NUMBERS, "bool")
def check_alltoall(name: str) -> None:
    size, rank = hvd.size(), hvd.rank()
    arrays = everyone((3 * size, 2), dtype_of(name), 11)
    expected = np.concatenate([array[3 * rank : 3 * rank + 3] for array in arrays])
    same(hvd.alltoall(arrays[rank]), expected, "alltoall")


def check_alltoall_with_splits() -> None:
    size, rank = hvd.size(), hvd.rank()
    for scale in (1, 5000):
        splits = [[((sender + to) % 3) * scale for to in range(size)] for sender in range(size)]
        # One row more than is sent: it is to be ignored.
        arrays = [data(r, (sum(splits[r]) + 1, 3), np.dtype("float32"), 12) for r in range(size)]
        output, received = hvd.alltoall(arrays[rank], splits=splits[rank])
        expected = [arrays[r][sum(splits[r][:rank]) :][: splits[r][rank]] for r in range(size)]
        same(output, np.concatenate(expected), ("alltoall", scale))
        same(received, np.array([splits[r][rank] for r in range(size)], np.int32), "received splits")
    nothing, received = hvd.alltoall(np.zeros((0, 2)), splits=np.zeros(size, np.int32))
    assert nothing.shape == (0, 2) and received.tolist() == [0] * size


def check_alltoall_async() -> None:
    size, rank = hvd.size(), hvd.rank()
    output, received = hvd.synchronize(hvd.alltoall_async(np.arange(size, dtype=np.int32)))
    assert output.tolist() == [rank] * size and received.tolist() == [1] * size


@cases(*NUMBERS)
def check_reducescatter(name: str) -> None:
    size, rank = hvd.size(), hvd.rank()
    for rows in (0, 1, size, 2 * size + 1, 5 * size - 1):
        for trailing in ((), (3,)):
            arrays = everyone((rows, *trailing), dtype_of(name), 13)
            for op in (hvd.Sum, hvd.Average):
                expected = combined(op, arrays)[rows_of(rows, size, rank)]
                result = hvd.reducescatter(arrays[rank], op=op)
                same(result, expected, ("reducescatter", op, rows, trailing))


def check_large_reducescatter() -> None:
    size, rank = hvd.size(), hvd.rank()
    arrays = everyone((50_001, 3), np.dtype("float32"), 14)
    result = hvd.reducescatter(arrays[rank], op=hvd.Sum)
    same(result, combined(hvd.Sum, arrays)[rows_of(50_001, size, rank)], "large reducescatter")


def group() -> tuple[list[Any], list[Any]]:
    """This rank's tensors of a group, and the group's sum."""
    dtypes = [np.dtype("float32"), np.dtype("int64"), BFLOAT16, np.dtype("float32"), np.dtype("float64")]
    sizes = [(5,), (), (0,), (70_001,), (2, 3)]
    arrays = [
        [data(rank, s, d, 15 + i) for i, (s, d) in enumerate(zip(sizes, dtypes, strict=True))]
        for rank in range(hvd.size())
    ]
    expected = [combined(hvd.Sum, [arrays[rank][i] for rank in range(hvd.size())]) for i in range(len(sizes))]
    return arrays[hvd.rank()], expected


def check_groups() -> None:
    mine, expected = group()
    results = hvd.grouped_allreduce(mine, op=hvd.Sum)
    assert isinstance(results, list)
    for i, result in enumerate(results):
        same(result, expected[i], ("grouped_allreduce", i))
    rows = [np.arange(3 * (hvd.rank() + 1) * k, dtype=np.int32).reshape(-1, 3) for k in (1, 2)]
    for k, result in zip((1, 2), hvd.grouped_allgather(rows), strict=True):
        parts = [np.arange(3 * (r + 1) * k, dtype=np.int32).reshape(-1, 3) for r in range(hvd.size())]
        same(result, np.concatenate(parts), ("grouped_allgather", k))
    tables = [np.full((hvd.size() * k, 2), hvd.rank() + 1.0) for k in (1, 2)]
    for k, result in zip((1, 2), hvd.grouped_reducescatter(tables, op=hvd.Sum), strict=True):
        same(result, np.full((k, 2), hvd.size() * (hvd.size() + 1) / 2), ("grouped_reducescatter", k))
    assert hvd.grouped_allreduce([]) == [] and hvd.grouped_allgather([]) == []
    assert len(hvd.grouped_allreduce([np.ones(2)])) == 1


def check_groups_in_place_and_async() -> None:
    mine, expected = group()
    results = hvd.synchronize(hvd.grouped_allreduce_async(mine, op=hvd.Sum, name="group"))
    assert isinstance(results, hvd.group_of_handle)
    for i, result in enumerate(results):
        same(result, expected[i], ("grouped_allreduce_async", i))
    copies = [array.copy() for array in mine]
    for i, result in enumerate(hvd.grouped_allreduce_(copies, op=hvd.Sum)):
        assert result is copies[i]
        same(result, expected[i], ("grouped_allreduce_", i))


def check_many_in_shuffled_order() -> None:
    # Different orders on different ranks; sizes from nothing to what can't be fused with its neighbours.
    count = 100
    order = np.random.default_rng(hvd.rank()).permutation(count)
    dtypes = [np.dtype("float32"), np.dtype("float64"), np.dtype("int32")]
    handles = {}
    for i in map(int, order):
        array = data(hvd.rank(), (i * 37 % 5003,), dtypes[i % 3], i)
        handles[i] = hvd.allreduce_async(array, name=f"shuffled {i}", op=hvd.Sum)
    for i in range(count):
        expected = combined(hvd.Sum, everyone((i * 37 % 5003,), dtypes[i % 3], i))
        same(hvd.synchronize(handles[i]), expected, ("shuffled", i))


def check_process_sets() -> None:
    """Sets within a host, across hosts, and with other numbers of ranks on each than the whole job has."""
    size = hvd.size()
    for ranks in ([0, size - 1], list(range(1, size)), list(range(0, size, 2)), list(range(size // 2))):
        ranks = sorted(set(ranks))
        if len(ranks) in (0, size):
            continue  # the set of all is there already
        chosen = hvd.add_process_set(ranks)
        if hvd.rank() in ranks:
            own = ranks.index(hvd.rank())
            for shape, dtype in [
                ((), BFLOAT16),
                ((1021,), np.dtype("float16")),
                ((70_001,), np.dtype("float32")),
            ]:
                arrays = everyone(shape, dtype, 16, ranks)
                for op in (hvd.Sum, hvd.Average):
                    result = hvd.allreduce(arrays[own], op=op, process_set=chosen)
                    same(result, combined(op, arrays, ranks), ("process set", ranks, op, shape, dtype))
            rows = everyone((2 * len(ranks), 3), np.dtype("float32"), 17, ranks)
            result = hvd.reducescatter(rows[own], op=hvd.Sum, process_set=chosen)
            same(result, combined(hvd.Sum, rows, ranks)[2 * own : 2 * own + 2], ("process set", ranks))
            same(hvd.allgather(rows[own], process_set=chosen), np.concatenate(rows), ("process set", ranks))
            same(hvd.broadcast(rows[own], ranks[-1], process_set=chosen), rows[-1], ("process set", ranks))
        hvd.remove_process_set(chosen)


def check_more_than_the_staging_memory() -> None:
    """40 MiB: several rounds between hosts. Small integers, so that the reference is quick."""
    size, rank, rows = hvd.size(), hvd.rank(), (10 << 20) + 3
    if len(groups()) == 1:
        skip("all ranks are in one group")
    pattern = np.arange(rows, dtype=np.float32) % 1009
    expected = pattern * size + size * (size - 1) / 2
    assert np.array_equal(hvd.allreduce(pattern + np.float32(rank), op=hvd.Sum), expected)
    own = rows_of(rows, size, rank)
    result = hvd.reducescatter(pattern + np.float32(rank), op=hvd.Sum)
    assert np.array_equal(result, expected[own])
    assert np.array_equal(hvd.allgather(pattern[own]), pattern)
    assert np.array_equal(hvd.broadcast(pattern * (rank + 1), size - 1), pattern * size)
