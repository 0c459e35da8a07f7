"""Operations without a name match again once ranks have done different numbers of them and joined."""

from __future__ import annotations

import numpy as np

import horovod.numpy as hvd


def join_unevenly() -> None:
    for _ in range(hvd.rank() + 1):
        hvd.allreduce(np.ones(3), op=hvd.Sum)
        hvd.grouped_allreduce([np.ones(2), np.ones(3)], op=hvd.Sum)
    hvd.join()


def every_operation(process_set: hvd.ProcessSet = hvd.global_process_set) -> None:
    """Twice, so that the second goes on counting."""
    size = process_set.size()
    rank = process_set.rank()
    assert size is not None and rank is not None
    last = (process_set.ranks or [])[-1]
    own = {"process_set": process_set}
    for _ in range(2):
        assert hvd.allreduce(np.ones(3), op=hvd.Sum, **own).tolist() == [size] * 3
        assert hvd.grouped_allreduce([np.ones(1)] * 2, op=hvd.Sum, **own)[1].tolist() == [size]
        assert hvd.allgather(np.array([rank]), **own).tolist() == list(range(size))
        assert hvd.grouped_allgather([np.array([rank])], **own)[0].tolist() == list(range(size))
        assert hvd.broadcast(np.array([rank]), last, **own).tolist() == [size - 1]
        assert hvd.alltoall(np.arange(size), **own).tolist() == [rank] * size
        assert hvd.reducescatter(np.arange(size), op=hvd.Sum, **own).tolist() == [size * rank]
        assert hvd.grouped_reducescatter([np.arange(size)], op=hvd.Sum, **own)[0].tolist() == [size * rank]
        assert hvd.broadcast_object(("rank", rank), last, **own) == ("rank", size - 1)
        assert hvd.allgather_object({rank}, **own) == [{each} for each in range(size)]


def check_after_one_join() -> None:
    join_unevenly()
    every_operation()


def check_after_several_joins() -> None:
    for _ in range(3):
        join_unevenly()
    every_operation()
    join_unevenly()
    every_operation()


def check_in_a_process_set() -> None:
    """Only some ranks of the set have counted."""
    chosen = hvd.add_process_set([hvd.size() - 2, hvd.size() - 1]) if hvd.size() > 2 else None
    own = hvd.global_process_set if chosen is None else chosen
    if own.included():
        for _ in range(own.rank() or 0):
            hvd.allreduce(np.ones(3), process_set=own)
    hvd.join()
    if own.included():
        every_operation(own)
    if chosen is not None:
        hvd.remove_process_set(chosen)


def check_after_operations_that_a_joined_rank_makes_fail() -> None:
    """They count only where they were tried."""
    if hvd.rank() != 0:
        for attempt in range(hvd.rank()):
            try:
                hvd.broadcast_object(attempt, 1)
            except hvd.HorovodInternalError:
                continue
            raise AssertionError("a broadcast worked though a rank had joined")
    hvd.join()
    every_operation()


def check_after_a_mismatch() -> None:
    for tensor in (np.ones(hvd.rank() + 1), np.ones(3, np.int32 if hvd.rank() else np.float32)):
        try:
            hvd.allreduce(tensor)
        except hvd.HorovodInternalError:
            continue
        raise AssertionError("different tensors were added")
    every_operation()


def check_after_a_mistake_on_one_rank() -> None:
    """What was refused does not count: it can be repeated."""
    if hvd.rank() == hvd.size() - 1:
        for attempt in (
            lambda: hvd.alltoall(np.ones(3), splits=[1] * (hvd.size() + 1)),
            lambda: hvd.broadcast(np.ones(3), hvd.size()),
            lambda: hvd.allreduce(np.ones(3, np.uint32)),
            lambda: hvd.allgather(np.array(["text"])),
        ):
            try:
                attempt()
            except ValueError:
                continue
            raise AssertionError("a mistake was accepted")
    every_operation()
