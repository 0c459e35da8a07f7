"""The collectives as users call them, written once for all frameworks.

A framework's module gives an `Adapter` for its tensors, and gradients where it has them, to an
`Api`; the methods of that are its functions. Names ending in `_` work in place. Those with `async`
return an int handle for poll() and synchronize(); their tensors must not change until then.
Unnamed operations are matched with those of other ranks by the order of the calls, named ones by
name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar, overload

from horovod.common.basics import Average
from horovod.common.collectives import BlockingCollectives, Collectives, TensorAdapter, reduce_op
from horovod.common.compression import Compressor, NoneCompressor
from horovod.common.handles import table
from horovod.common.process_sets import ProcessSet, global_process_set

Tensor = TypeVar("Tensor")
TensorLike = TypeVar("TensorLike", contravariant=True)  # what the framework turns into a tensor


class Adapter(TensorAdapter[Tensor], Protocol[Tensor, TensorLike]):
    """How to reach the memory of a framework's tensors, and what users may pass for one."""

    def readable(self, tensor: TensorLike) -> Tensor:
        """What a user passed to be read, as a tensor; ValueError if that can't be had."""

    def writable(self, tensor: Tensor) -> Tensor:
        """The tensor that a user passed to be overwritten; ValueError if it can't be."""


class Api(Generic[Tensor, TensorLike]):
    """The functions of a framework's module.

    `blocking` runs the operations whose callers wait for new tensors; with gradients, if it has
    some.
    """

    def __init__(
        self, adapter: Adapter[Tensor, TensorLike], blocking: BlockingCollectives[Tensor] | None = None
    ) -> None:
        self._readable = adapter.readable
        self._writable = adapter.writable
        self._submit = Collectives(adapter)
        self._run = blocking or BlockingCollectives(self._submit)

    def allreduce(
        self,
        tensor: TensorLike,
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor[Tensor]] = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """The ranks' tensors combined element by element by `op` (default: Average)."""
        op = reduce_op(op, average)
        sent, context = compression.compress(self._readable(tensor))
        result: Tensor = self._run.allreduce(
            (sent,), name, op, prescale_factor, postscale_factor, process_set, False
        )
        return compression.decompress(result, context)

    def allreduce_(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """allreduce() that overwrites its tensor and returns it."""
        return self._submit.run_allreduce(
            self._writable(tensor),
            name,
            reduce_op(op, average),
            prescale_factor,
            postscale_factor,
            process_set,
            in_place=True,
        )

    def allreduce_async(
        self,
        tensor: TensorLike,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """allreduce() as a handle; its result has no gradient."""
        op = reduce_op(op, average)
        return self._submit.allreduce(
            (self._readable(tensor),), name, op, prescale_factor, postscale_factor, process_set
        )

    def allreduce_async_(
        self,
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """allreduce_() as a handle."""
        op = reduce_op(op, average)
        return self._submit.allreduce(
            (self._writable(tensor),),
            name,
            op,
            prescale_factor,
            postscale_factor,
            process_set,
            in_place=True,
        )

    def grouped_allreduce(
        self,
        tensors: Iterable[TensorLike],
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor[Tensor]] = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[Tensor]:
        """allreduce() of several tensors together, once all are there on all ranks."""
        op = reduce_op(op, average)
        sent, contexts = self._compressed(tensors, compression)
        results = self._run.allreduce(sent, name, op, prescale_factor, postscale_factor, process_set, True)
        return _decompressed(results, contexts, compression)

    def grouped_allreduce_(
        self,
        tensors: Iterable[Tensor],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> list[Tensor]:
        """grouped_allreduce() that overwrites its tensors and returns them."""
        written = list(tensors)
        table.synchronize(
            self.grouped_allreduce_async_(
                written, average, name, op, prescale_factor, postscale_factor, process_set
            )
        )
        return written

    def grouped_allreduce_async(
        self,
        tensors: Iterable[TensorLike],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """grouped_allreduce() as a handle that resolves to a tuple."""
        op = reduce_op(op, average)
        group = [self._readable(tensor) for tensor in tensors]
        return self._submit.allreduce(
            group, name, op, prescale_factor, postscale_factor, process_set, grouped=True
        )

    def grouped_allreduce_async_(
        self,
        tensors: Iterable[Tensor],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """grouped_allreduce_() as a handle that resolves to a tuple."""
        op = reduce_op(op, average)
        group = [self._writable(tensor) for tensor in tensors]
        return self._submit.allreduce(
            group, name, op, prescale_factor, postscale_factor, process_set, in_place=True, grouped=True
        )

    def allgather(
        self, tensor: TensorLike, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> Tensor:
        """The ranks' tensors one after another along the first dimension; lengths may differ."""
        result: Tensor = self._run.allgather((self._readable(tensor),), name, process_set, False)
        return result

    def allgather_async(
        self, tensor: TensorLike, name: str | None = None, process_set: ProcessSet = global_process_set
    ) -> int:
        """allgather() as a handle; its result has no gradient."""
        return self._submit.allgather((self._readable(tensor),), name, process_set)

    def grouped_allgather(
        self,
        tensors: Iterable[TensorLike],
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> list[Tensor]:
        """allgather() of several tensors together."""
        group = [self._readable(tensor) for tensor in tensors]
        return list(self._run.allgather(group, name, process_set, True))

    def grouped_allgather_async(
        self,
        tensors: Iterable[TensorLike],
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """grouped_allgather() as a handle that resolves to a tuple."""
        group = [self._readable(tensor) for tensor in tensors]
        return self._submit.allgather(group, name, process_set, grouped=True)

    def broadcast(
        self,
        tensor: TensorLike,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """The tensor of `root_rank`, which is a global rank also within a process set."""
        return self._run.broadcast(self._readable(tensor), root_rank, name, process_set)

    def broadcast_(
        self,
        tensor: Tensor,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor:
        """broadcast() that overwrites its tensor and returns it."""
        table.synchronize(self.broadcast_async_(tensor, root_rank, name, process_set))
        return tensor

    def broadcast_async(
        self,
        tensor: TensorLike,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """broadcast() as a handle; its result has no gradient."""
        return self._submit.broadcast(self._readable(tensor), root_rank, name, process_set)

    def broadcast_async_(
        self,
        tensor: Tensor,
        root_rank: int,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """broadcast_() as a handle."""
        return self._submit.broadcast(self._writable(tensor), root_rank, name, process_set, in_place=True)

    @overload
    def alltoall(
        self,
        tensor: TensorLike,
        splits: None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor: ...

    @overload
    def alltoall(
        self,
        tensor: TensorLike,
        splits: Sequence[int] | Tensor,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> tuple[Tensor, Tensor]: ...

    def alltoall(
        self,
        tensor: TensorLike,
        splits: Sequence[int] | Tensor | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Sends splits[r] rows to each rank r and returns the rows received, in rank order.

        Without splits every rank gets the same number of rows. With splits, which are a
        list of ints or a 1-D int32 tensor, the result is (output, received splits).
        """
        output, received = self._run.alltoall(self._readable(tensor), splits, name, process_set)
        return output if splits is None else (output, received)

    def alltoall_async(
        self,
        tensor: TensorLike,
        splits: Sequence[int] | Tensor | None = None,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        """alltoall() as a handle that always resolves to (output, received splits)."""
        return self._submit.alltoall(self._readable(tensor), splits, name, process_set)

    def reducescatter(
        self,
        tensor: TensorLike,
        name: str | None = None,
        compression: type[Compressor[Tensor]] = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Tensor:
        """This rank's rows of the combined tensors; the first ranks may get one more."""
        op = reduce_op(op, None)
        sent, context = compression.compress(self._readable(tensor))
        result: Tensor = self._run.reducescatter(
            (sent,), name, op, prescale_factor, postscale_factor, process_set, False
        )
        return compression.decompress(result, context)

    def reducescatter_async(
        self,
        tensor: TensorLike,
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """reducescatter() as a handle; its result has no gradient."""
        op = reduce_op(op, None)
        return self._submit.reducescatter(
            (self._readable(tensor),), name, op, prescale_factor, postscale_factor, process_set
        )

    def grouped_reducescatter(
        self,
        tensors: Iterable[TensorLike],
        name: str | None = None,
        compression: type[Compressor[Tensor]] = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[Tensor]:
        """reducescatter() of several tensors together."""
        op = reduce_op(op, None)
        sent, contexts = self._compressed(tensors, compression)
        results = self._run.reducescatter(
            sent, name, op, prescale_factor, postscale_factor, process_set, True
        )
        return _decompressed(results, contexts, compression)

    def grouped_reducescatter_async(
        self,
        tensors: Iterable[TensorLike],
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> int:
        """grouped_reducescatter() as a handle that resolves to a tuple."""
        op = reduce_op(op, None)
        group = [self._readable(tensor) for tensor in tensors]
        return self._submit.reducescatter(
            group, name, op, prescale_factor, postscale_factor, process_set, grouped=True
        )

    def _compressed(
        self, tensors: Iterable[TensorLike], compression: type[Compressor[Tensor]]
    ) -> tuple[list[Tensor], list[Any]]:
        pairs = [compression.compress(self._readable(tensor)) for tensor in tensors]
        return [tensor for tensor, _ in pairs], [context for _, context in pairs]


def _decompressed(
    results: Iterable[Tensor], contexts: list[Any], compression: type[Compressor[Tensor]]
) -> list[Tensor]:
    return [
        compression.decompress(result, context) for result, context in zip(results, contexts, strict=True)
    ]
