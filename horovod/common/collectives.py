"""The collectives without a framework: what every adapter does between its tensors and the engine.

An adapter describes its tensors by a `TensorAdapter`; `Collectives` then submits operations on them
and returns handles for `horovod.common.handles.table`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from horovod import _core
from horovod.common.handles import Finished, InPlace, Pending, table
from horovod.common.process_sets import ProcessSet, global_process_set, id_of
from horovod.common.session import Session, for_collective, state
from horovod.common.util import num_rank_is_power_2, warn_deprecated
from horovod.errors import HorovodInternalError

T = TypeVar("T")

_Spec = tuple[int, int, Sequence[int], int]  # input, output, shape, dtype: see _core.TensorSpec


class TensorAdapter(Protocol[T]):
    """How to reach the memory of a framework's tensors."""

    def staged(self, tensor: T) -> T:
        """Contiguous memory that the engine can use: the tensor itself, or else a copy of it."""

    def empty_like(self, tensor: T) -> T:
        """A new contiguous tensor of the same shape and dtype with any content."""

    def describe(self, tensor: T) -> tuple[int, Sequence[int], int]:
        """Address, shape and dtype code of a staged tensor;
        ValueError if the dtype is not supported."""

    def assign(self, target: T, source: T) -> None:
        """Copies the content of a staged tensor back to the one it was staged for."""

    def unstaged(self, staged: T, tensor: T) -> T:
        """The result that was written over `staged`, a copy of `tensor`, as the user wants it.

        It may be `staged` itself unless the tensor is on another device.
        """

    def wrap(self, memory: _core.Memory | None, shape: tuple[int, ...], like: T) -> T:
        """A tensor on memory of the engine (None: it is
        empty), with the dtype and device of `like`."""

    def splits_to_list(self, splits: Any) -> list[int]:
        """The splits that a user passed to alltoall; ValueError if they are not 1-D int32."""

    def splits_from_list(self, splits: list[int]) -> T:
        """A 1-D int32 tensor."""


def reduce_op(op: int | None, average: bool | None) -> int:
    """The reduction that `op` and the deprecated `average` ask for."""
    if average is not None:
        if op is not None:
            raise ValueError("give either op or average, not both; average is deprecated")
        warn_deprecated("average is deprecated: use op=hvd.Average or op=hvd.Sum")
        return _core.AVERAGE if average else _core.SUM
    if op is None:
        return _core.AVERAGE
    if not _core.AVERAGE <= op <= _core.PRODUCT:
        raise ValueError(f"op must be one of hvd.Average, Sum, Adasum, Min, Max and Product, got {op!r}")
    return op


def check_adasum(process_set: ProcessSet) -> None:
    """NotImplementedError where Adasum can't work.

    Without hvd.init() the operation itself says so.
    """
    if process_set.process_set_id != 0:
        raise NotImplementedError("Adasum works on the global process set only")
    ranks = process_set.size() if state.session is not None else 1
    if not num_rank_is_power_2(ranks or 1):
        raise NotImplementedError(f"Adasum needs a power of two of ranks, there are {ranks}")


def join(device: int = -1) -> int:
    """Declares that this rank has no more data: until all joined, the others' allreduces go on
    without it.

    Averages still divide by the number of all ranks. Returns the rank that joined last. `device` is
    accepted for compatibility.
    """
    session = for_collective()
    last = session.run(_core.JOIN, b"join.noname", 0)
    session.joins += 1
    return last


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set has called it."""
    for_collective().run(_core.BARRIER, b"barrier.noname", id_of(process_set))


class Collectives(Generic[T]):
    """Submits collectives on an adapter's tensors. Lists have several tensors only where `grouped`.

    The handle of a group resolves to a tuple, else to the tensor.
    """

    def __init__(self, adapter: TensorAdapter[T]) -> None:
        self._adapter = adapter

    def allreduce(
        self,
        tensors: Sequence[T],
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        *,
        in_place: bool = False,
        grouped: bool = False,
        staged: Sequence[T] | None = None,
    ) -> int:
        """`staged`: what the adapter has made of the tensors, if it was asked before."""
        session, number = for_collective(), id_of(process_set)
        if op == _core.ADASUM:
            check_adasum(process_set)
        if staged is None:
            staged = [self._adapter.staged(tensor) for tensor in tensors]
        if op != _core.ADASUM and not grouped and name is not None and staged[0] is tensors[0]:
            handle = self._submit_again(
                tensors[0], name, op, prescale, postscale, session.engine, number, in_place
            )
            if handle != 0:
                return handle
        specs, keep, finish = self._same_shape(tensors, staged, in_place, grouped)
        operation = "grouped_allreduce" if grouped else "allreduce"
        return _submit(
            session, _core.ALLREDUCE, operation, name, number, specs, finish, keep, op, 0, prescale, postscale
        )

    def run_allreduce(
        self,
        tensor: T,
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        *,
        in_place: bool = False,
    ) -> T:
        """allreduce() of one tensor to its end; in a quarter of the time if it is a small one that
        is reduced again and again."""
        staged = None
        if name is not None and op != _core.ADASUM and (staged := self._adapter.staged(tensor)) is tensor:
            engine, number = for_collective().engine, id_of(process_set)
            prepared, source, target, result = self._prepared(
                tensor, name, op, prescale, postscale, engine, number, in_place
            )
            if prepared.run(source, target, (tensor, result)):
                return result
        submitted = self.allreduce(
            (tensor,),
            name,
            op,
            prescale,
            postscale,
            process_set,
            in_place=in_place,
            staged=None if staged is None else (staged,),
        )
        reduced: T = table.synchronize(submitted)
        return reduced

    def _prepared(
        self,
        tensor: T,
        name: str,
        op: int,
        prescale: float,
        postscale: float,
        engine: _core.Engine,
        number: int,
        in_place: bool,
    ) -> tuple[_core.Prepared, int, int, T]:
        """The allreduce of a staged tensor, where it reads and writes, and its result."""
        source, shape, dtype = self._adapter.describe(tensor)
        result, target = tensor, source
        if not in_place:
            result = self._adapter.empty_like(tensor)
            target = self._adapter.describe(result)[0]
        prepared = engine.prepared(
            _core.ALLREDUCE, "allreduce", name, number, shape, dtype, op, prescale, postscale
        )
        return prepared, source, target, result

    def _submit_again(
        self,
        tensor: T,
        name: str,
        op: int,
        prescale: float,
        postscale: float,
        engine: _core.Engine,
        number: int,
        in_place: bool,
    ) -> int:
        """A handle for a staged tensor, or 0 if another thread uses what is prepared."""
        prepared, source, target, result = self._prepared(
            tensor, name, op, prescale, postscale, engine, number, in_place
        )
        pending = InPlace(engine, result, tensor)
        handle = table.add(pending)
        try:
            pending.number = prepared.submit(source, target)
        except (ValueError, HorovodInternalError):  # refused, so the engine does not use the memory
            table.discard(handle)
            raise
        if pending.number == 0:
            table.discard(handle)
            return 0
        return handle

    def broadcast(
        self, tensor: T, root_rank: int, name: str | None, process_set: ProcessSet, *, in_place: bool = False
    ) -> int:
        session, number = for_collective(), id_of(process_set)
        specs, keep, finish = self._same_shape([tensor], [self._adapter.staged(tensor)], in_place, False)
        return _submit(
            session, _core.BROADCAST, "broadcast", name, number, specs, finish, keep, root=root_rank
        )

    def allgather(
        self, tensors: Sequence[T], name: str | None, process_set: ProcessSet, *, grouped: bool = False
    ) -> int:
        session, number = for_collective(), id_of(process_set)
        specs, keep, finish = self._engine_shape(tensors, grouped)
        operation = "grouped_allgather" if grouped else "allgather"
        return _submit(session, _core.ALLGATHER, operation, name, number, specs, finish, keep)

    def reducescatter(
        self,
        tensors: Sequence[T],
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        *,
        grouped: bool = False,
    ) -> int:
        session, number = for_collective(), id_of(process_set)
        specs, keep, finish = self._engine_shape(tensors, grouped)
        operation = "grouped_reducescatter" if grouped else "reducescatter"
        return _submit(
            session,
            _core.REDUCESCATTER,
            operation,
            name,
            number,
            specs,
            finish,
            keep,
            op,
            0,
            prescale,
            postscale,
        )

    def alltoall(self, tensor: T, splits: Any, name: str | None, process_set: ProcessSet) -> int:
        """The handle resolves to (output, received splits)."""
        session, number = for_collective(), id_of(process_set)
        numbers = None if splits is None else self._adapter.splits_to_list(splits)
        specs, keep, take_output = self._engine_shape([tensor], False)

        def finish(engine: _core.Engine, handle: int) -> tuple[T, T]:
            received = self._adapter.splits_from_list(engine.received_splits(handle))
            return take_output(engine, handle), received

        return _submit(
            session, _core.ALLTOALL, "alltoall", name, number, specs, finish, keep, numbers=numbers
        )

    def _same_shape(
        self, tensors: Sequence[T], staged_tensors: Sequence[T], in_place: bool, grouped: bool
    ) -> tuple[list[_Spec], object, Callable[[_core.Engine, int], Any]]:
        """For operations whose outputs look like their inputs."""
        adapter = self._adapter
        specs: list[_Spec] = []
        keep: list[T] = []
        results: list[T] = []
        copies: list[tuple[int, T, T]] = []
        for index, (tensor, staged) in enumerate(zip(tensors, staged_tensors, strict=True)):
            address, shape, dtype = adapter.describe(staged)
            result, output = tensor, address
            if staged is not tensor:
                copies.append((index, tensor, staged))  # a copy of our own: the result may overwrite it
            elif not in_place:
                result = adapter.empty_like(tensor)
                output = adapter.describe(result)[0]
            specs.append((address, output, shape, dtype))
            keep.append(staged)
            results.append(result)

        def finish(engine: _core.Engine, handle: int) -> Any:
            for index, tensor, staged in copies:
                if in_place:
                    adapter.assign(tensor, staged)
                else:
                    results[index] = adapter.unstaged(staged, tensor)
            return tuple(results) if grouped else results[0]

        return specs, keep, finish

    def _engine_shape(
        self, tensors: Sequence[T], grouped: bool
    ) -> tuple[list[_Spec], object, Callable[[_core.Engine, int], Any]]:
        """For operations whose outputs the engine allocates,
        as their shapes depend on other ranks."""
        adapter = self._adapter
        keep = [adapter.staged(tensor) for tensor in tensors]
        specs: list[_Spec] = []
        for staged in keep:
            address, shape, dtype = adapter.describe(staged)
            specs.append((address, 0, shape, dtype))

        def finish(engine: _core.Engine, handle: int) -> Any:
            outputs = []
            for index, like in enumerate(tensors):
                memory, shape = engine.take_output(handle, index, specs[index][3])
                outputs.append(adapter.wrap(memory, shape, like))
            return tuple(outputs) if grouped else outputs[0]

        return specs, keep, finish


class BlockingCollectives(Generic[T]):
    """Collectives that wait for their results, which are new tensors: a tuple of them where
    `grouped`.

    A framework with gradients derives from it.
    """

    def __init__(self, collectives: Collectives[T]) -> None:
        self._collectives = collectives

    def allreduce(
        self,
        tensors: Sequence[T],
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        grouped: bool,
        /,
    ) -> Any:
        if not grouped:
            return self._collectives.run_allreduce(tensors[0], name, op, prescale, postscale, process_set)
        return table.synchronize(
            self._collectives.allreduce(tensors, name, op, prescale, postscale, process_set, grouped=True)
        )

    def allgather(
        self, tensors: Sequence[T], name: str | None, process_set: ProcessSet, grouped: bool
    ) -> Any:
        return table.synchronize(self._collectives.allgather(tensors, name, process_set, grouped=grouped))

    def reducescatter(
        self,
        tensors: Sequence[T],
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        grouped: bool,
        /,
    ) -> Any:
        return table.synchronize(
            self._collectives.reducescatter(
                tensors, name, op, prescale, postscale, process_set, grouped=grouped
            )
        )

    def broadcast(self, tensor: T, root_rank: int, name: str | None, process_set: ProcessSet) -> T:
        result: T = table.synchronize(self._collectives.broadcast(tensor, root_rank, name, process_set))
        return result

    def alltoall(self, tensor: T, splits: Any, name: str | None, process_set: ProcessSet) -> tuple[T, T]:
        """The rows received, and how many came from each rank."""
        result: tuple[T, T] = table.synchronize(self._collectives.alltoall(tensor, splits, name, process_set))
        return result


def _submit(
    session: Session,
    kind: int,
    operation: str,
    name: str | None,
    process_set: int,
    specs: list[_Spec],
    finish: Callable[[_core.Engine, int], Any],
    keep: object,
    op: int = _core.SUM,
    root: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    numbers: list[int] | None = None,
) -> int:
    if not specs:  # an empty group: nothing to agree on
        return table.add(Finished(()))
    engine = session.engine
    pending = Pending(engine, finish, (specs, keep))
    handle = table.add(pending)

    full = operation if name is None else f"{operation}.{name}"
    try:
        pending.number = engine.submit(
            kind,
            full.encode(),
            process_set,
            specs,
            op,
            root,
            prescale,
            postscale,
            numbers,
            unnamed=name is None,
        )
    except (ValueError, HorovodInternalError):  # refused, so the engine does not use the memory
        table.discard(handle)
        raise
    return handle
