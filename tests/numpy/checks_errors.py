"""Mistakes: each raises the right error and names the tensor, and the engine goes on. Two ranks or more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from util_expect import raises, refused_splits

import horovod.numpy as hvd
from horovod import _core
from horovod.common.session import for_collective


def still_works() -> None:
    assert hvd.allreduce(np.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3


def disagree(name: str, call: Callable[[bool], Any], *texts: str) -> None:
    """`call` with True on rank 0 and False elsewhere must fail on all ranks with the same text."""
    text = ""
    try:
        call(hvd.rank() == 0)
    except hvd.HorovodInternalError as error:
        text = str(error)
    assert text, f"{name}: no error"
    for part in (name, *texts):
        assert part in text, f"{part!r} is not in {text!r}"
    assert set(hvd.allgather_object(text)) == {text}
    still_works()


def check_shapes() -> None:
    disagree("shape", lambda odd: hvd.allreduce(np.ones(3 if odd else 4), name="shape"), "[3]", "[4]")
    disagree("dims", lambda odd: hvd.allreduce(np.ones((2, 2) if odd else 4), name="dims"), "[2, 2]", "[4]")
    disagree("shape of b", lambda odd: hvd.broadcast(np.ones(3 if odd else 4), 0, name="shape of b"), "[3]")
    disagree(
        "shape of s",
        lambda odd: hvd.reducescatter(np.ones((3, 2 if odd else 4)), name="shape of s"),
        "[3, 2]",
    )
    disagree("trailing", lambda odd: hvd.allgather(np.ones((3, 2 if odd else 4)), name="trailing"), "[3, 2]")
    disagree("flat", lambda odd: hvd.allgather(np.ones((3, 2) if odd else 4), name="flat"), "[3, 2]")
    size = hvd.size()
    disagree("wide", lambda odd: hvd.alltoall(np.ones((size, 2 if odd else 4)), name="wide"), f"[{size}, 2]")


def check_group_sizes() -> None:
    disagree("members", lambda odd: hvd.grouped_allreduce([np.ones(2)] * (2 if odd else 3), name="members"))
    disagree("group", lambda odd: hvd.grouped_allreduce([np.ones(2), np.ones(3 if odd else 4)], name="group"))


def check_dtypes() -> None:
    disagree(
        "type",
        lambda odd: hvd.allreduce(np.ones(3, "f4" if odd else "f8"), name="type"),
        "float32",
        "float64",
    )
    disagree(
        "int", lambda odd: hvd.allgather(np.ones(3, "i4" if odd else "i8"), name="int"), "int32", "int64"
    )
    # The dtype is looked at before the shape.
    disagree(
        "both",
        lambda odd: hvd.allreduce(np.ones(3 if odd else 4, "f4" if odd else "f8"), name="both"),
        "float32",
    )


def check_reduce_ops_and_factors() -> None:
    disagree(
        "op", lambda odd: hvd.allreduce(np.ones(3), name="op", op=hvd.Sum if odd else hvd.Max), "Sum", "Max"
    )
    disagree(
        "pre",
        lambda odd: hvd.allreduce(np.ones(3), name="pre", prescale_factor=2.0 if odd else 1.0),
        "prescale",
    )
    disagree("post", lambda odd: hvd.allreduce(np.ones(3), name="post", postscale_factor=2.0 if odd else 1.0))
    disagree("root", lambda odd: hvd.broadcast(np.ones(3), 0 if odd else 1, name="root"), "0", "1")


def check_kinds_of_operation() -> None:
    # The names of the API contain the operation, so only the layer below can mix them.
    engine = for_collective().engine
    array = np.ones(4, np.float32)

    def submit(odd: bool) -> None:
        kind = _core.ALLREDUCE if odd else _core.BROADCAST
        handle = engine.submit(kind, b"mixed", 0, [(array.ctypes.data, array.ctypes.data, (4,), 8)])
        code = engine.wait(handle)
        failure = engine.failure(handle, code)
        engine.release(handle)
        assert code == _core.FAILED_PRECONDITION
        raise failure

    disagree("mixed", submit, "allreduce", "broadcast")


def check_scalars_that_need_rows() -> None:
    disagree("dot", lambda odd: hvd.allgather(np.float32(1), name="dot"))
    disagree("dots", lambda odd: hvd.reducescatter(np.float32(1), name="dots"))


def check_operations_that_are_not_allowed() -> None:
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        disagree(
            "least", lambda odd, op=op: hvd.reducescatter(np.ones(4), name="least", op=op), "reducescatter"
        )
    disagree(
        "order", lambda odd: hvd.allreduce(np.ones(4, np.complex64), name="order", op=hvd.Max), "complex64"
    )
    if hvd.size() & (hvd.size() - 1) == 0:
        disagree("ints", lambda odd: hvd.allreduce(np.ones(4, np.int32), name="ints", op=hvd.Adasum), "int32")


def check_bad_splits() -> None:
    size = hvd.size()
    arrays = [np.ones((size, 1), np.int32), np.ones(size, np.int64)]
    lists = [[1] * (size + 1), [size] * size, [-1] * size]
    refused_splits(hvd, np.ones((size, 2)), [*lists, *arrays], uneven=np.ones(size + 1))
    still_works()


def check_bad_roots() -> None:
    for root in (-1, hvd.size(), 10**6):
        with raises(ValueError, str(root)):
            hvd.broadcast(np.ones(1), root, name="nowhere")
        with raises(ValueError):
            hvd.broadcast_object(1, root)
    still_works()


def check_unknown_process_set() -> None:
    removed = hvd.ProcessSet([0])
    removed.process_set_id = 77
    with raises(ValueError, "77"):
        hvd.allreduce(np.ones(1), process_set=removed)
    with raises(ValueError):
        removed.size()
    with raises(ValueError, "77"):
        hvd.barrier(removed)
    still_works()


def check_static_process_sets_stay() -> None:
    with raises(ValueError, "dynamic"):
        hvd.add_process_set([0])


def check_many_mistakes() -> None:
    handles = []
    for i in range(50):
        bad = i % 3 == 0
        array = np.ones(4 if bad and hvd.rank() == 0 else 5)
        handles.append((bad, hvd.allreduce_async(array, name=f"mixed {i}", op=hvd.Sum)))
    for i, (bad, handle) in enumerate(handles):
        if bad:
            with raises(hvd.HorovodInternalError, f"mixed {i}"):
                hvd.synchronize(handle)
        else:
            assert hvd.synchronize(handle)[0] == hvd.size()
    still_works()


def check_one_rank_catches_its_own_error() -> None:
    # An error of one rank alone, between two collectives, disturbs nobody.
    if hvd.rank() == 0:
        with raises(ValueError):
            hvd.allreduce(np.array(["text"]))
    still_works()
