"""The collectives in functions that XLA compiles (`jit_compile=True`), with their gradients.

There every shape is fixed while tracing: this rank's place and the number of ranks become
constants, and ranks must give the same number of rows. xla/custom_call.cc checks when the call runs
that they did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from horovod import _core
from horovod.common import session as sessions
from horovod.tensorflow import xla
from horovod.tensorflow.xla import Operation


@dataclass(frozen=True)
class Target:
    """The operation's name and its process set."""

    name: str
    process_set: int

    @property
    def gradient(self) -> Target:
        """That of the operation for the gradients."""
        return Target(f"{self.name}_grad", self.process_set)

    def members(self) -> tuple[int, int]:
        """The number of ranks in the set, and this one's place among them."""
        session = sessions.for_query()
        ranks = session.engine.process_set_ranks(self.process_set)
        if ranks is None or session.place.rank not in ranks:
            raise ValueError(
                f"{self.name}: rank {session.place.rank} is not in process set {self.process_set}, whose "
                f"ranks are {ranks}"
            )
        return len(ranks), ranks.index(session.place.rank)


def allreduce(
    tensors: Sequence[Any], target: Target, op: int, prescale: float, postscale: float
) -> list[Any]:
    """See ops._grouped_allreduce()."""
    return xla.call(
        Operation("HorovodAllreduce", _core.ALLREDUCE, target.process_set, op, 0, prescale, postscale),
        tensors,
        target.name,
        lambda gradients: allreduce(gradients, target.gradient, op, prescale, postscale),
    )


def _average(tensors: Sequence[Any], target: Target) -> list[Any]:
    return allreduce(tensors, target, _core.AVERAGE, 1.0, 1.0)


def broadcast(tensors: Sequence[Any], target: Target, root_rank: int) -> list[Any]:
    """See ops.grouped_broadcast()."""
    is_root = sessions.for_query().place.rank == root_rank

    def gradient(gradients: Sequence[Any]) -> list[Any]:
        averaged = _average(gradients, target.gradient)
        return averaged if is_root else [tf.zeros_like(value) for value in averaged]

    return xla.call(
        Operation("HorovodBroadcast", _core.BROADCAST, target.process_set, root_rank=root_rank),
        tensors,
        target.name,
        gradient,
    )


def allgather(tensors: Sequence[Any], target: Target) -> list[Any]:
    """See ops.grouped_allgather(). All ranks must give the same number of rows."""
    size, place = target.members()
    rows = [_rows(tensor, "hvd.allgather()") for tensor in tensors]
    return _gather(tensors, target, [size * count for count in rows], [place * count for count in rows])


def _gather(tensors: Sequence[Any], target: Target, totals: list[int], starts: list[int]) -> list[Any]:
    """`totals`: the rows of the results; `starts`: where this rank's begin."""

    def gradient(gradients: Sequence[Any]) -> list[Any]:
        averaged = _average(gradients, target.gradient)
        counts = [tensor.shape[0] for tensor in tensors]
        return [
            value[start : start + count] for value, start, count in zip(averaged, starts, counts, strict=True)
        ]

    return xla.call(
        Operation("HorovodAllgather", _core.ALLGATHER, target.process_set),
        tensors,
        target.name,
        gradient,
        [[total, *tensor.shape[1:]] for total, tensor in zip(totals, tensors, strict=True)],
    )


def alltoall(tensor: Any, target: Target, splits: Any) -> tuple[Any, Any]:
    """See ops.alltoall(); the rows received, and how many from each rank.

    All ranks send the same number.
    """
    size, _ = target.members()
    count = _even_split(tensor, splits, size)

    def gradient(gradients: Sequence[Any]) -> list[Any]:
        sent, _ = alltoall(gradients[0], target.gradient, None)
        # Rows beyond the sum of the splits were not sent, so nothing depends on them.
        return [tf.pad(sent, [[0, tensor.shape[0] - size * count]] + [[0, 0]] * (len(tensor.shape) - 1))]

    (received,) = xla.call(
        Operation("HorovodAlltoall", _core.ALLTOALL, target.process_set, splits=(count,) * size),
        [tensor],
        target.name,
        gradient,
        [[size * count, *tensor.shape[1:]]],
    )
    return received, tf.fill([size], count)


def _even_split(tensor: Any, splits: Any, size: int) -> int:
    rows = _rows(tensor, "hvd.alltoall()")
    if splits is None:
        if rows % size:
            raise ValueError(
                f"hvd.alltoall() without splits: {rows} rows can't be divided among {size} ranks; give splits"
            )
        return rows // size
    known = tf.get_static_value(tf.convert_to_tensor(splits, dtype=tf.int32))
    if known is None or len({int(count) for count in known.flat}) != 1:
        raise xla.refusal("hvd.alltoall() with splits that are not all the same")
    count = int(known.flat[0])
    if known.shape != (size,) or count < 0 or size * count > rows:
        raise ValueError(
            f"hvd.alltoall(): splits {known.tolist()} must have one entry for each of {size} ranks, and "
            f"a sum of at most {rows}, the number of rows"
        )
    return count


def reducescatter(
    tensors: Sequence[Any], target: Target, op: int, prescale: float, postscale: float
) -> list[Any]:
    """See ops._grouped_reducescatter()."""
    size, place = target.members()
    rows = [_rows(tensor, "hvd.reducescatter()") for tensor in tensors]
    counts = [total // size + (place < total % size) for total in rows]
    starts = [place * (total // size) + min(place, total % size) for total in rows]

    def gradient(gradients: Sequence[Any]) -> list[Any]:
        factor = prescale * postscale * (size if op == _core.SUM else 1)
        scaled = [value * tf.cast(factor, value.dtype) for value in gradients]
        return _gather(scaled, target.gradient, rows, starts)

    return xla.call(
        Operation(
            "HorovodReducescatter", _core.REDUCESCATTER, target.process_set, op, 0, prescale, postscale
        ),
        tensors,
        target.name,
        gradient,
        [[count, *tensor.shape[1:]] for count, tensor in zip(counts, tensors, strict=True)],
    )


def _rows(tensor: Any, call: str) -> int:
    """The length of the first dimension."""
    if tensor.shape.rank == 0:
        raise ValueError(f"{call} needs a tensor with a first dimension; {tensor.name} has none")
    if tensor.shape.rank is None or tensor.shape[0] is None:
        raise xla.unknown_shape(call, tensor)
    return int(tensor.shape[0])
