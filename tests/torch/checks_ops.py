"""The collectives on torch tensors against what torch computes. Two ranks or more."""

from __future__ import annotations

import gc
import weakref
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from util_expect import raises

import horovod.torch as hvd

INTEGER = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
NUMBERS = INTEGER + FLOATING + COMPLEX
ALL = [*NUMBERS, torch.bool, torch.uint16]
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (17,), (2, 3, 5), (4, 0, 2), (9001,)]


def data(rank: int, shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    """What `rank` contributes: small integers, so that sums are exact in every dtype."""
    random = torch.Generator().manual_seed(1000 * seed + rank)
    values = torch.randint(0 if dtype in (torch.uint8, torch.uint16) else -6, 7, shape, generator=random)
    if dtype.is_complex:
        return (values * (1 - 2j)).to(dtype)
    return (values % 2).to(dtype) if dtype is torch.bool else values.to(dtype)


def everyone(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    return [data(rank, shape, dtype, seed) for rank in range(hvd.size())]


def same(actual: Any, expected: Tensor, *what: object) -> None:
    assert isinstance(actual, Tensor) and type(actual) is not torch.nn.Parameter, what
    assert actual.dtype == expected.dtype, (what, actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    assert torch.equal(actual, expected), (what, actual, expected)


def close(actual: Tensor, expected: Tensor, *what: object) -> None:
    torch.testing.assert_close(actual, expected, msg=lambda text: f"{what}: {text}")


def total(tensors: list[Tensor]) -> Tensor:
    return reduce(torch.add, tensors)


def check_namespace() -> None:
    from horovod.torch import compression, functions, mpi_ops, sync_batch_norm

    for name in hvd.__all__:
        assert hasattr(hvd, name), name
    for name in mpi_ops.__all__:
        assert hasattr(mpi_ops, name), name
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks()[0] == list(range(hvd.size()))
    assert mpi_ops.is_homogeneous() and hvd.is_homogeneous()
    assert mpi_ops.allreduce_async_ is hvd.allreduce_async_ and mpi_ops.synchronize is hvd.synchronize
    assert functions.broadcast_parameters is hvd.broadcast_parameters
    assert compression.Compression is hvd.Compression and sync_batch_norm.SyncBatchNorm is hvd.SyncBatchNorm
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)


def check_allreduce() -> None:
    for dtype in NUMBERS:
        for shape in SHAPES:
            expected, mine = total(everyone(shape, dtype)), data(hvd.rank(), shape, dtype)
            before = mine.clone()
            same(hvd.allreduce(mine, op=hvd.Sum), expected, "sum", dtype, shape)
            handle = hvd.allreduce_async(mine, op=hvd.Sum)
            assert type(handle) is int
            same(hvd.synchronize(handle), expected, "async", dtype, shape)
            same(mine, before, "input", dtype, shape)
            assert hvd.allreduce_(mine, op=hvd.Sum) is mine
            same(mine, expected, "in place", dtype, shape)
            assert hvd.synchronize(hvd.allreduce_async_(before, op=hvd.Sum)) is before
            same(before, expected, "async in place", dtype, shape)


def check_average() -> None:
    for dtype in FLOATING + COMPLEX:
        tensors = everyone((17,), dtype, 1)
        close(hvd.allreduce(tensors[hvd.rank()]), total(tensors) / hvd.size(), dtype)
    for dtype in INTEGER:  # toward zero
        tensors = everyone((17,), dtype, 1)
        expected = torch.div(total(tensors), hvd.size(), rounding_mode="trunc")
        same(hvd.allreduce(tensors[hvd.rank()]), expected, dtype)


def check_min_max_product() -> None:
    for dtype in INTEGER + FLOATING:
        tensors = everyone((33,), dtype, 2)
        for op, combine in ((hvd.Min, torch.minimum), (hvd.Max, torch.maximum), (hvd.Product, torch.mul)):
            same(hvd.allreduce(tensors[hvd.rank()], op=op), reduce(combine, tensors), op, dtype)
    tensors = everyone((33,), torch.bool, 2)
    same(hvd.allreduce(tensors[hvd.rank()], op=hvd.Sum), reduce(torch.logical_or, tensors))
    same(hvd.allreduce(tensors[hvd.rank()], op=hvd.Min), reduce(torch.logical_and, tensors))


def check_factors() -> None:
    tensors = everyone((50,), torch.float32, 3)
    result = hvd.allreduce(tensors[hvd.rank()], op=hvd.Sum, prescale_factor=0.5, postscale_factor=8.0)
    same(result, 4 * total(tensors))
    mine = tensors[hvd.rank()].clone()
    hvd.allreduce_(mine, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25)
    same(mine, total(tensors) / 2)


def check_adasum() -> None:
    if hvd.size() & (hvd.size() - 1):
        with raises(NotImplementedError, str(hvd.size())):
            hvd.allreduce(torch.ones(3), op=hvd.Adasum)
        return
    same(hvd.allreduce(torch.full((3,), 5.0), op=hvd.Adasum), torch.full((3,), 5.0))
    orthogonal = torch.zeros(hvd.size())
    orthogonal[hvd.rank()] = 2.0
    same(hvd.allreduce(orthogonal, op=hvd.Adasum), torch.full((hvd.size(),), 2.0))


def check_not_contiguous() -> None:
    base = torch.arange(24.0).reshape(4, 6) + hvd.rank()
    views = [torch.arange(24.0).reshape(4, 6) + rank for rank in range(hvd.size())]
    expected = total([view.t()[::2] for view in views])
    before = base.clone()
    result = hvd.allreduce(base.t()[::2], op=hvd.Sum)
    same(result, expected)
    assert result.is_contiguous()
    same(base, before)
    view = base.t()[::2]
    assert hvd.allreduce_(view, op=hvd.Sum) is view
    same(view, expected)
    same(base[:, 1::2], before[:, 1::2])
    wide = torch.arange(48.0).reshape(2, 4, 3, 2).to(memory_format=torch.channels_last) + hvd.rank()
    [copy] = hvd.grouped_allreduce_([wide], op=hvd.Min)
    assert copy is wide and wide.is_contiguous(memory_format=torch.channels_last)
    same(wide, torch.arange(48.0).reshape(2, 4, 3, 2))
    column = torch.full((3, 2), float(hvd.rank()))[:, 0]
    hvd.broadcast_(column, 1)
    same(column, torch.ones(3))
    same(hvd.allgather(torch.full((2, 2), float(hvd.rank())).t())[2:4], torch.ones(2, 2))
    same(hvd.allreduce(torch.ones(1).expand(5), op=hvd.Sum), torch.full((5,), float(hvd.size())))
    with raises(ValueError, "expanded"):
        hvd.allreduce_(torch.ones(1).expand(5))


def check_lazy_conjugates() -> None:
    mine = torch.tensor([1 + 2j, 3 - 1j]) * (hvd.rank() + 1)
    assert mine.conj().is_conj() and mine.conj().imag.is_neg()
    weight = sum(range(1, hvd.size() + 1))
    same(hvd.allreduce(mine.conj(), op=hvd.Sum), torch.tensor([1 - 2j, 3 + 1j]) * weight)
    same(hvd.allreduce(mine.conj().imag, op=hvd.Sum), torch.tensor([-2.0, 1.0]) * weight)
    same(hvd.allgather(mine.conj())[:2], torch.tensor([1 - 2j, 3 + 1j]))


def check_in_place_on_parameters() -> None:
    leaf = torch.nn.Parameter(torch.full((3,), float(hvd.rank())))
    assert hvd.broadcast_(leaf, 1) is leaf and leaf.requires_grad and leaf.is_leaf
    assert leaf.tolist() == [1, 1, 1]
    column = torch.nn.Parameter(torch.full((3, 2), float(hvd.rank())))
    hvd.allreduce_(column[:, 0], op=hvd.Sum)
    same(column.detach()[:, 0], torch.full((3,), sum(range(hvd.size())) * 1.0))
    same(column.detach()[:, 1], torch.full((3,), float(hvd.rank())))
    # What backward() needs and an operation in place overwrote is an error, not a wrong gradient.
    doubled = leaf * leaf
    hvd.allreduce_(leaf)
    with raises(RuntimeError, "modified by an inplace operation"):
        doubled.sum().backward()
    with torch.inference_mode():
        hvd.allreduce_(torch.ones(3))


def check_groups() -> None:
    dtypes = [torch.float32, torch.int64, torch.bfloat16, torch.float32, torch.float64]
    shapes: list[tuple[int, ...]] = [(5,), (), (0,), (70_001,), (2, 3)]
    kinds = list(zip(shapes, dtypes, strict=True))
    tensors = [data(hvd.rank(), shape, dtype, 4 + i) for i, (shape, dtype) in enumerate(kinds)]
    expected = [total(everyone(shape, dtype, 4 + i)) for i, (shape, dtype) in enumerate(kinds)]
    results = hvd.grouped_allreduce(tensors, op=hvd.Sum)
    assert isinstance(results, list)
    resolved = hvd.synchronize(hvd.grouped_allreduce_async(iter(tensors), op=hvd.Sum, name="group"))
    assert isinstance(resolved, tuple)
    copies = [tensor.clone() for tensor in tensors]
    written = hvd.grouped_allreduce_(copies, op=hvd.Sum)
    more = [tensor.clone() for tensor in tensors]
    resolved_ = hvd.synchronize(hvd.grouped_allreduce_async_(more, op=hvd.Sum))
    for i, tensor in enumerate(expected):
        assert written[i] is copies[i] and resolved_[i] is more[i]
        for result in (results[i], resolved[i], written[i], resolved_[i]):
            same(result, tensor, "group", i)
    assert hvd.grouped_allreduce([]) == [] and hvd.grouped_allgather([]) == []
    assert hvd.grouped_allreduce_([]) == [] and hvd.grouped_reducescatter([]) == []


def check_allgather() -> None:
    for dtype in ALL:
        for trailing in ((), (3,), (2, 5), (0,)):
            rows = [0 if rank == 1 else 2 * rank + 1 for rank in range(hvd.size())]
            tensors = [data(rank, (n, *trailing), dtype, 9) for rank, n in enumerate(rows)]
            result = hvd.allgather(tensors[hvd.rank()])
            same(result, torch.cat(tensors), dtype, trailing)
    assert hvd.allgather(torch.zeros(0, 4)).shape == (0, 4)
    result = hvd.synchronize(hvd.allgather_async(torch.full((2,), float(hvd.rank())), name="gathered"))
    same(result, torch.arange(float(hvd.size())).repeat_interleave(2))
    result.add_(1)  # it is ordinary memory
    pair = [torch.full((hvd.rank() + 1, k), hvd.rank()) for k in (1, 2)]
    for k, gathered in zip((1, 2), hvd.grouped_allgather(pair), strict=True):
        same(gathered, torch.cat([torch.full((rank + 1, k), rank) for rank in range(hvd.size())]))
    assert isinstance(hvd.synchronize(hvd.grouped_allgather_async(pair, name="two")), tuple)


def check_broadcast() -> None:
    for root in range(hvd.size()):
        for dtype in ALL:
            for shape in SHAPES if root == 0 else [(17,)]:
                tensors = everyone(shape, dtype, 10)
                mine = tensors[hvd.rank()].clone()
                same(hvd.broadcast(mine, root), tensors[root], dtype, shape)
                same(mine, tensors[hvd.rank()], "input")
                assert hvd.broadcast_(mine, root) is mine
                same(mine, tensors[root], "in place", dtype, shape)
    mine = torch.full((2,), float(hvd.rank()))
    same(hvd.synchronize(hvd.broadcast_async(mine, 1, name="b")), torch.ones(2))
    assert hvd.synchronize(hvd.broadcast_async_(mine, 1, name="b")) is mine
    same(mine, torch.ones(2))


def check_alltoall() -> None:
    size, rank = hvd.size(), hvd.rank()
    for dtype in ALL:
        tensors = everyone((3 * size, 2), dtype, 11)
        result = hvd.alltoall(tensors[rank])
        same(result, torch.cat([tensor[3 * rank : 3 * rank + 3] for tensor in tensors]), dtype)
    splits = [[(sender + to) % 3 for to in range(size)] for sender in range(size)]
    tensors = [data(r, (sum(splits[r]) + 1, 3), torch.float32, 12) for r in range(size)]
    parts = [tensors[r][sum(splits[r][:rank]) :][: splits[r][rank]] for r in range(size)]
    for given in (splits[rank], tuple(splits[rank]), torch.tensor(splits[rank], dtype=torch.int32)):
        output, received = hvd.alltoall(tensors[rank], splits=given)
        same(output, torch.cat(parts))
        same(received, torch.tensor([splits[r][rank] for r in range(size)], dtype=torch.int32))
    output, received = hvd.synchronize(hvd.alltoall_async(torch.arange(size), name="pair"))
    assert output.tolist() == [rank] * size and received.tolist() == [1] * size
    nothing, received = hvd.alltoall(torch.zeros(0, 2), splits=[0] * size)
    assert nothing.shape == (0, 2) and received.tolist() == [0] * size


def check_reducescatter() -> None:
    size, rank = hvd.size(), hvd.rank()
    for dtype in NUMBERS:
        for rows in (0, 1, size, 2 * size + 1):
            for trailing in ((), (3,)):
                tensors = everyone((rows, *trailing), dtype, 13)
                first, count = (
                    rank * (rows // size) + min(rank, rows % size),
                    rows // size + (rank < rows % size),
                )
                expected = total(tensors)[first : first + count]
                same(hvd.reducescatter(tensors[rank], op=hvd.Sum), expected, dtype, rows, trailing)
    mine = torch.full((size, 2), rank + 1.0)
    average = (size + 1) / 2
    same(hvd.reducescatter(mine), torch.full((1, 2), average))
    same(hvd.synchronize(hvd.reducescatter_async(mine, name="r")), torch.full((1, 2), average))
    same(hvd.reducescatter(mine, prescale_factor=2.0, postscale_factor=3.0), torch.full((1, 2), 6 * average))
    for k, result in zip((1, 2), hvd.grouped_reducescatter([mine, mine.repeat(2, 1)]), strict=True):
        same(result, torch.full((k, 2), average))
    resolved = hvd.synchronize(hvd.grouped_reducescatter_async([mine, mine], op=hvd.Sum))
    assert isinstance(resolved, tuple)
    same(resolved[1], torch.full((1, 2), average * size))


def check_sparse() -> None:
    size, rank = hvd.size(), hvd.rank()

    def part(rank: int) -> Tensor:
        indices = torch.tensor([[0, rank, rank], [1, 0, 0]])
        return torch.sparse_coo_tensor(indices, torch.full((3, 2), rank + 1.0), (size, 2, 2))

    dense = total([part(r).to_dense() for r in range(size)])
    for op, expected in ((hvd.Sum, dense), (hvd.Average, dense / size)):
        finish = hvd.sparse_allreduce_async(part(rank), name="sparse", op=op)
        assert callable(finish)
        result = finish()
        assert result.is_sparse and not result.is_coalesced() and finish() is result
        assert result._nnz() == 3 * size
        close(result.to_dense(), expected)
    whole = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.tensor([1, -rank]), (2,))
    averaged = hvd.sparse_allreduce_async(whole, "whole", hvd.Average)().to_dense()
    assert averaged.dtype is torch.float32
    close(averaged, torch.tensor([1.0, -sum(range(size)) / size]))
    summed = hvd.sparse_allreduce_async(whole, "whole", hvd.Sum)().to_dense()
    same(summed, torch.tensor([size, -sum(range(size))]))
    rows = torch.sparse_coo_tensor(torch.arange(rank)[None], torch.ones(rank), (size,))  # none on rank 0
    expected = torch.tensor([float(size - 1 - i) for i in range(size)])
    same(hvd.sparse_allreduce_async(rows, None, hvd.Sum)().to_dense(), expected)
    empty = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.long), torch.zeros(0), (4,))
    result = hvd.sparse_allreduce_async(empty, "empty", hvd.Average)()
    assert result.is_sparse and result._nnz() == 0 and result.shape == (4,)
    # Another shape on rank 0 only; indices that are too large for it must not be written.
    odd = torch.sparse_coo_tensor(torch.tensor([[rank * 5]]), torch.ones(1), (3 if rank == 0 else 50,))
    finish = hvd.sparse_allreduce_async(odd, "odd", hvd.Sum)
    if rank == 0 and size > 1:
        with raises(hvd.HorovodInternalError, "odd", "[3]"):
            finish()
    else:
        finish()
    for op in (hvd.Adasum, hvd.Max):
        with raises(NotImplementedError, "sparse"):
            hvd.sparse_allreduce_async(rows, "no", op)
    with raises(ValueError, "COO"):
        hvd.sparse_allreduce_async(torch.ones(3), "dense", hvd.Sum)
    with raises(ValueError, "sparse_allreduce_async"):
        hvd.allreduce(rows)


def check_bf16_compression_keeps_the_range() -> None:
    assert hvd.Compression.bf16.compress(torch.tensor([1e38]))[0].isfinite().all()


def check_tensors_live_as_long_as_needed() -> None:
    handles = [hvd.allreduce_async(torch.full((50_000,), hvd.rank() + 1.0), op=hvd.Sum) for _ in range(50)]
    for handle in handles:
        assert (hvd.synchronize(handle) == hvd.size() * (hvd.size() + 1) / 2).all()
    gathered = [hvd.allgather(torch.full((1000,), float(i))) for i in range(50)]
    assert all((tensor == i).all() for i, tensor in enumerate(gathered))
    # And no longer.
    tensor = torch.ones(3)
    gone = weakref.ref(tensor)
    result = hvd.allreduce(tensor)
    del tensor
    gc.collect()
    assert gone() is None and result.tolist() == [1, 1, 1]


def check_flush_denormal_on_one_rank() -> None:
    """Subnormal numbers count, whatever one rank has set for the thread that calls."""
    size, rank = hvd.size(), hvd.rank()
    if rank == 1:
        assert torch.set_flush_denormal(True)
    try:
        for dtype, bits in ((torch.float32, torch.int32), (torch.float64, torch.int64)):
            for count in (1, 1000, 200_000):
                # They are multiples of the smallest one: their bits add up like integers.
                numbers = torch.arange(count, dtype=bits) % 1000 + 1
                mine = (numbers + rank).view(dtype)
                expected = numbers * size + size * (size - 1) // 2
                same(hvd.allreduce(mine, op=hvd.Sum).view(bits), expected, dtype, count)
                handle = hvd.allreduce_async(mine, op=hvd.Sum)
                same(hvd.synchronize(handle).view(bits), expected, dtype, count)
                halves = hvd.allreduce((numbers * size * 2).view(dtype), prescale_factor=0.5)
                same(halves.view(bits), numbers * size, dtype, count)
    finally:
        torch.set_flush_denormal(False)


def check_join() -> None:
    for batch in range(hvd.rank() + 1):
        result = hvd.allreduce(torch.full((5,), 6.0), name=f"batch {batch}")
        close(result, torch.full((5,), 6.0 * (hvd.size() - batch) / hvd.size()))
    assert hvd.join() == hvd.size() - 1
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum)[0] == hvd.size()


def check_process_sets() -> None:
    size, rank = hvd.size(), hvd.rank()
    high = hvd.add_process_set(range(1, size))
    ranks = list(range(1, size))
    if rank == 0:
        with raises(ValueError):
            hvd.allreduce(torch.ones(1), process_set=high)
    else:
        mine = torch.full((2,), float(rank))
        same(hvd.allreduce(mine, op=hvd.Sum, process_set=high), torch.full((2,), float(sum(ranks))))
        same(hvd.grouped_allreduce([mine], op=hvd.Max, process_set=high)[0], torch.full((2,), size - 1.0))
        same(hvd.allgather(mine[:1], process_set=high), torch.tensor(ranks).float())
        same(hvd.broadcast(mine, size - 1, process_set=high), torch.full((2,), size - 1.0))
        rows = torch.arange(size - 1) * 10 + rank
        assert hvd.alltoall(rows, process_set=high).tolist() == [10 * (rank - 1) + r for r in ranks]
        rows = torch.ones(size - 1)
        same(hvd.reducescatter(rows, op=hvd.Sum, process_set=high), torch.full((1,), size - 1.0))
        sparse = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (2,))
        averaged = hvd.sparse_allreduce_async(sparse, "sparse", hvd.Average, process_set=high)()
        close(averaged.to_dense(), torch.tensor([1.0, 0.0]))
        assert hvd.broadcast_object(rank, size - 1, process_set=high) == size - 1
        with raises(ValueError):
            hvd.broadcast(mine, 0, process_set=high)
        hvd.barrier(high)
    hvd.barrier()
    assert hvd.remove_process_set(high)
