"""The one place that talks to libhorovod.so, through ctypes and the C ABI of csrc/hvd.h."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int32, c_int64, c_uint64
from typing import Any, NoReturn

from horovod import _abi
from horovod._abi import *  # noqa: F403  # the constants, for the layers above
from horovod._abi import (
    IN_PROGRESS,
    INVALID_ARGUMENT,
    SUM,
    TIMELINE_ALL_RANKS,
    TIMELINE_MARK_CYCLES,
    UNKNOWN,
)
from horovod._core_types import Culprit as Culprit
from horovod._core_types import Event as Event
from horovod._core_types import MpiTable as MpiTable
from horovod._core_types import SessionLike, WorldLike
from horovod._core_types import Summary as Summary
from horovod._core_types import TensorSpec as TensorSpec

_CHANNEL_KEY_BYTES, _MESH_KEY_BYTES = 16, 32
_DTYPE_SIZES = (1, 1, 2, 2, 4, 8, 2, 2, 4, 8, 1, 8, 16)
# hvd_wait() returns at a signal; the slice only bounds the delay of one that another thread swallowed.
_WAIT_SLICE = 0.5
_MOST_PREPARED = 1024  # names; more are prepared anew

_lib = _abi.load(os.path.join(os.path.dirname(__file__), "libhorovod.so"))
_free = _lib.hvd_free
# Names of what Engine.metrics() gives.
METRICS: tuple[str, ...] = tuple(_lib.hvd_metric_names().decode().split())
# Names of what Engine.autotune() may change.
TUNABLES: tuple[str, ...] = tuple(_lib.hvd_tunable_names().decode().split())
_MetricValues = c_uint64 * len(METRICS)
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()  # also those that have ended


def jax_target() -> Any:
    """The function of csrc/adapters/jax that XLA calls, as ctypes sees it."""
    return _lib.hvd_jax_collective


def encryption_problem() -> str:
    """What keeps the core from encrypting, or nothing."""
    return _last_error() if _lib.hvd_can_encrypt() < 0 else ""


def shm_bytes(size: int) -> tuple[int, int]:
    """The shared memory that `size` ranks of one host use, in bytes: with room for tensors, and without."""
    return int(_lib.hvd_shm_bytes_with_heap(size)), int(_lib.hvd_shm_bytes(size))


def _free_shared(address: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked child has the same memory as its parent
        _lib.hvd_free_shared(address)


class Memory:
    """Memory allocated by the engine, returned to it when the last array on it is gone.

    It has numpy's array interface (flat bytes), so `numpy.asarray(memory)` is a view that keeps it alive.
    """

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, address: int, size: int, free: Callable[[int], object] = _free) -> None:
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
        # Not at exit: other threads may still look at the arrays then, and the process is ending anyway.
        weakref.finalize(self, free, address).atexit = False


class _RequestBuffer:
    """A request with room for its tensors, reused so that a submit allocates nothing."""

    __slots__ = ("dims", "request", "shape_address", "shapes", "tensor_array", "tensors")

    def __init__(self, tensors: int, dims: int) -> None:
        self.dims = dims
        self.tensor_array = (_abi.Tensor * tensors)()
        self.tensors = [self.tensor_array[i] for i in range(tensors)]
        self.shapes = (c_int64 * dims)()
        self.shape_address = ctypes.addressof(self.shapes)
        self.request = _abi.Request(
            struct_size=ctypes.sizeof(_abi.Request), tensors=ctypes.addressof(self.tensor_array)
        )


class Prepared:
    """An operation on one tensor that is submitted again and again, at other addresses.

    Only what changes is set then, in less than half of Engine.submit()'s time. For one thread at a time.
    """

    __slots__ = ("_buffer", "_engine", "_handle", "_keep", "_lock", "_name", "_request", "_tensor")

    def __init__(
        self,
        engine: Engine,
        kind: int,
        name: bytes,
        process_set: int,
        shape: Sequence[int],
        dtype: int,
        reduce_op: int = SUM,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> None:
        self._engine = engine
        self._name = name  # the request has only its address
        self._buffer = buffer = _RequestBuffer(1, max(len(shape), 1))
        buffer.shapes[: len(shape)] = shape  # type: ignore[call-overload]  # any sequence will do
        self._tensor = buffer.tensors[0]
        self._tensor.shape = buffer.shape_address
        self._tensor.ndim = len(shape)
        self._tensor.dtype = dtype
        request = buffer.request
        request.kind = kind
        request.name = name
        request.process_set = process_set
        request.reduce_op = reduce_op
        request.tensor_count = 1
        request.prescale = prescale
        request.postscale = postscale
        self._request = ctypes.addressof(request)
        self._handle = c_int64()
        self._lock = threading.Lock()
        self._keep: object = None

    def run(self, source: int, target: int, keep: object) -> bool:
        """Runs it to its end, while `keep` holds the memory; False if another thread runs it.

        An exception from a signal handler (Ctrl-C) leaves it running: then it can't be run again.
        """
        if not self._lock.acquire(False):
            return False
        self._keep = keep
        self._tensor.input = source
        self._tensor.output = target
        handle, engine = self._handle, self._engine
        try:
            code: int = _lib.hvd_run(engine._pointer, self._request, _WAIT_SLICE, ctypes.byref(handle))
            error = _last_error() if code != 0 and handle.value == 0 else None
            waited = code > 0
            if waited:
                code = engine.wait(handle.value)
        except BaseException:  # the engine still uses the memory, also when others have taken its place
            engine._interrupted.append(self)
            raise
        if code < 0 or waited:
            failure = engine.failure(handle.value, code) if code < 0 and error is None else None
            engine.release(handle.value)
            if code < 0:
                self._keep = None
                self._lock.release()
                if failure is not None:
                    raise failure
                engine._fail(code, error or "")
        self._keep = None
        self._lock.release()
        return True

    def submit(self, source: int, target: int) -> int:
        """As Engine.submit(); 0 if another thread is at it. The memory must outlive the operation."""
        if not self._lock.acquire(False):
            return 0
        try:
            self._tensor.input = source
            self._tensor.output = target
            engine = self._engine
            handle: int = _lib.hvd_submit(engine._pointer, self._request)
            if handle <= 0:
                engine._fail(handle, _last_error())
            return handle
        finally:
            self._lock.release()


# Ranks build their error from the code, so that this file knows no exception of the layers above.
ErrorFactory = Callable[[int, str], Exception]


def _int32_array(values: Sequence[int] | None) -> Any:
    return None if values is None else (c_int32 * len(values))(*values)


def _keys(sessions: Sequence[SessionLike | None], size: int) -> bytes:
    """Those of connections, one after the other, each cut to the size that the core uses."""
    unused = bytes(2 * size)
    return b"".join(each.send[:size] + each.receive[:size] if each else unused for each in sessions)


def _native_knobs(knobs: object) -> _abi.Knobs:
    native = _abi.Knobs(struct_size=ctypes.sizeof(_abi.Knobs))
    for name in _abi.KNOBS:
        value = getattr(knobs, name)
        setattr(native, name, _abi.LOG_LEVELS[value] if name == "log_level" else value)
    return native


class Engine:
    """A running engine. All methods may be called from any thread.

    The native object lives as long as this one, so a thread that still waits during shutdown() is safe.
    """

    def __init__(
        self,
        world: WorldLike,
        knobs: object,
        error: ErrorFactory,
        mpi: MpiTable | None = None,
        affinity: int = -1,
    ) -> None:
        """Takes over every descriptor of `world`, also on failure (RuntimeError).

        `knobs` has an attribute for each one that the core acts on; `affinity` is the core for the engine's
        thread, if it is not -1. `mpi` is for the transport of that name; its communicator must live until
        shutdown().
        """
        self._pointer: int | None = None
        self._size = world.size
        self._error = error
        self._buffers: list[_RequestBuffer] = []
        self._prepared: dict[object, Prepared] = {}
        self._interrupted: list[Prepared] = []
        peers = (_abi.Peer * world.size)(
            *[_abi.Peer(p.host.encode(), p.pid, p.same_host) for p in world.peers]
        )
        native = _abi.World(
            struct_size=ctypes.sizeof(_abi.World),
            rank=world.rank,
            size=world.size,
            transport=_abi.TRANSPORTS[world.transport],
            peers=peers,
            control_fds=_int32_array(world.control_fds),
            liveness_fds=_int32_array(world.liveness_fds),
            mesh_fds=_int32_array(world.mesh_fds),
            mesh_streams=world.streams,
            shm_fd=world.shm_fd,
            affinity=affinity,
            local_rank=world.local_rank,
            local_size=world.local_size,
            hosts=_int32_array(world.hosts),
            mpi=None if mpi is None else ctypes.pointer(_abi.Mpi(*mpi)),
            control_keys=_keys(world.control_sessions, _CHANNEL_KEY_BYTES),
            liveness_keys=_keys(world.liveness_sessions, _CHANNEL_KEY_BYTES),
            mesh_keys=_keys(world.mesh_sessions, _MESH_KEY_BYTES) if world.mesh_sessions else None,
            knobs=ctypes.pointer(_native_knobs(knobs)),
            control_in_memory=1,
            control_parents=_int32_array(world.parents),
        )
        self._pointer = _lib.hvd_create(ctypes.byref(native))
        if not self._pointer:
            raise error(UNKNOWN, f"cannot start the engine of rank {world.rank}: {_last_error()}")
        _lib.hvd_set_default(self._pointer)
        _engines.add(self)

    def __del__(self, _destroy: Callable[[int], None] = _lib.hvd_destroy) -> None:
        if self._pointer:
            _destroy(self._pointer)

    def shutdown(self) -> None:
        """Ends the engine on all ranks; what is pending fails. Blocks until this rank's threads ended."""
        _lib.hvd_shutdown(self._pointer)
        _lib.hvd_set_default(None)
        # They refer to this: it is to be freed now, and not when rubbish is collected.
        self._prepared = {}
        self._interrupted = []

    def abort(self, reason: str) -> None:
        """Fails every pending and later operation here and on all peers."""
        _lib.hvd_abort(self._pointer, reason.encode())

    def culprit(self) -> Culprit | None:
        """The rank that has ended the engine by its failure; None if none has or it is not known."""
        silent = c_int32()
        rank = int(_lib.hvd_culprit(self._pointer, ctypes.byref(silent)))
        return None if rank < 0 else Culprit(rank, bool(silent))

    def after_fork_in_child(self) -> None:
        """Closes this copy's descriptors. Nothing is freed: that would look for threads that are not here."""
        pointer, self._pointer = self._pointer, None
        if pointer:
            _lib.hvd_after_fork_in_child(pointer)

    def submit(
        self,
        kind: int,
        name: bytes,
        process_set: int,
        tensors: Sequence[TensorSpec | tuple[int, int, Sequence[int], int]] = (),
        reduce_op: int = SUM,
        root_rank: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
        numbers: Sequence[int] | None = None,
        unnamed: bool = False,
    ) -> int:
        """Hands an operation to the engine and returns its handle. The tensors' memory must outlive it.

        `unnamed`: the engine makes the name unique by a number, which counts these calls.
        """
        count = len(tensors)
        dims = sum([len(tensor[2]) for tensor in tensors])
        # A buffer is taken out of the list while in use: another thread then finds a different one.
        try:
            buffer = self._buffers.pop()
            if dims > buffer.dims or count > len(buffer.tensors):
                buffer = _RequestBuffer(count, dims)
        except IndexError:
            buffer = _RequestBuffer(max(count, 8), max(dims, 32))
        offset = 0
        for native, (input_address, output_address, shape, dtype) in zip(
            buffer.tensors, tensors, strict=False
        ):
            native.input = input_address
            native.output = output_address
            ndim = native.ndim = len(shape)
            native.shape = buffer.shape_address + 8 * offset
            native.dtype = dtype
            buffer.shapes[offset : offset + ndim] = shape  # type: ignore[call-overload]  # any sequence will do
            offset += ndim
        request = buffer.request
        request.kind = kind
        request.name = name
        request.process_set = process_set
        request.reduce_op = reduce_op
        request.root_rank = root_rank
        request.tensor_count = count
        request.prescale = prescale
        request.postscale = postscale
        request.unnamed = unnamed
        if numbers is None:
            request.numbers = None
            request.number_count = 0
        else:
            array = (c_int32 * len(numbers))(*numbers)
            request.numbers = ctypes.addressof(array)
            request.number_count = len(numbers)
        handle: int = _lib.hvd_submit(self._pointer, ctypes.byref(request))
        if handle <= 0:
            # The text belongs to this thread's last failed call, so it is read before anything else happens.
            self._fail(handle, _last_error())
        self._buffers.append(buffer)
        return handle

    def prepared(
        self,
        kind: int,
        operation: str,
        name: str,
        process_set: int,
        shape: Sequence[int],
        dtype: int,
        reduce_op: int,
        prescale: float,
        postscale: float,
    ) -> Prepared:
        """The one for operations like this, which are called `operation`.`name`."""
        key = (kind, name, process_set, shape, dtype, reduce_op, prescale, postscale)
        known = self._prepared.get(key)
        if known is None:
            if len(self._prepared) >= _MOST_PREPARED:
                self._prepared = {}
            full = f"{operation}.{name}".encode()
            known = self._prepared[key] = Prepared(
                self, kind, full, process_set, shape, dtype, reduce_op, prescale, postscale
            )
        return known

    def allocate_shared(self, size: int) -> Memory | None:
        """Memory that the ranks of this host reach of each other; None if there is none (left)."""
        address = _lib.hvd_allocate_shared(self._pointer, size)
        owner = os.getpid()
        return Memory(address, size, lambda address: _free_shared(address, owner)) if address else None

    def poll(self, handle: int) -> bool:
        """Whether the operation has completed, well or not; it may have been released, too."""
        return bool(_lib.hvd_poll(self._pointer, handle))

    def wait(self, handle: int) -> int:
        """Blocks until the operation is done and returns OK or its code.

        An exception from here comes from a signal handler (Ctrl-C): the operation then goes on.
        """
        code: int = IN_PROGRESS
        while code > 0:  # Python runs signal handlers between two calls
            code = _lib.hvd_wait(self._pointer, handle, _WAIT_SLICE)
        return code

    def finish(self, handle: int) -> int:
        """wait(), and release() if it returns OK."""
        code: int = IN_PROGRESS
        while code > 0:
            code = _lib.hvd_finish(self._pointer, handle, _WAIT_SLICE)
        return code

    def failure(self, handle: int, code: int) -> Exception:
        """The error of an operation for which wait() returned `code`."""
        text = _lib.hvd_error(self._pointer, handle)
        return self._error(
            code, text.decode(errors="replace") if text else f"handle {handle} is unknown to the engine"
        )

    def result(self, handle: int) -> int:
        """The number that a join or a process-set operation gave."""
        return int(_lib.hvd_result(self._pointer, handle))

    def take_output(self, handle: int, index: int, dtype: int) -> tuple[Memory | None, tuple[int, ...]]:
        """An output that the engine allocated, as (memory, shape); no memory if it is empty."""
        ndim: int = _lib.hvd_output_ndim(self._pointer, handle, index)
        shape = (c_int64 * max(ndim, 1))()
        if ndim < 0 or _lib.hvd_output_shape(self._pointer, handle, index, shape) < 0:
            self._fail(INVALID_ARGUMENT, f"handle {handle} has no output {index}")
        dims = tuple(shape[:ndim])
        address = _lib.hvd_take_output(self._pointer, handle, index)
        if not address:
            return None, dims
        size = _DTYPE_SIZES[dtype]
        for dim in dims:
            size *= dim
        return Memory(address, size), dims

    def received_splits(self, handle: int) -> list[int]:
        """An alltoall's number of rows from each rank."""
        count: int = _lib.hvd_received_splits(self._pointer, handle, None, 0)
        splits = (c_int32 * max(count, 1))()
        _lib.hvd_received_splits(self._pointer, handle, splits, max(count, 0))
        return splits[: max(count, 0)]

    def release(self, handle: int) -> None:
        """Forgets a completed operation."""
        _lib.hvd_release(self._pointer, handle)

    def process_set_ids(self) -> list[int]:
        """Ids of the registered sets in ascending order, the global one (0) included."""
        return self._int32_list(_lib.hvd_process_set_ids)

    def process_set_ranks(self, process_set: int) -> list[int] | None:
        """Sorted ranks of a set, None if there is none with this id."""
        try:
            return self._int32_list(_lib.hvd_process_set_ranks, process_set)
        except KeyError:
            return None

    def connect(self, rank: int, descriptor: int, session: SessionLike | None) -> None:
        """Takes over a connection to a rank that had none for data, or not all streams; encrypted if there is
        a session."""
        keys = None if session is None else _keys([session], _MESH_KEY_BYTES)
        code: int = _lib.hvd_connect(self._pointer, rank, descriptor, keys)
        if code < 0:
            self._fail(code, _last_error())

    def timeline_start(self, path: str, mark_cycles: bool, all_ranks: bool = False) -> None:
        """Rank 0 writes a trace to `path`; with `all_ranks` each rank
        all that it records to a file beside it."""
        flags = TIMELINE_MARK_CYCLES * mark_cycles | TIMELINE_ALL_RANKS * all_ranks
        if (code := _lib.hvd_timeline_start(self._pointer, os.fsencode(path), flags)) < 0:
            self._fail(code, _last_error())

    def timeline_stop(self) -> None:
        if (code := _lib.hvd_timeline_stop(self._pointer)) < 0:
            self._fail(code, _last_error())

    def mark(self, name: bytes, phase: int) -> None:
        """Something of the application's, for the timeline; `phase` is one of MARK_*."""
        _lib.hvd_mark(self._pointer, name, phase)

    def end_step(self, kind: int) -> None:
        """A step ends, as far as the optimizer or tape knows that `kind` (not 0) stands for."""
        _lib.hvd_end_step(self._pointer, kind)

    def log(self, level: str, text: str) -> None:
        """A line of the engine's log, if that level is wanted."""
        _lib.hvd_log(self._pointer, _abi.LOG_LEVELS[level], text.encode(errors="replace"))

    def autotune(self, suggested: Mapping[str, int], **options: int) -> None:
        """Rank 0 searches for parameters from here on; `suggested` are values to try first, by the names
        of TUNABLES, `options` the other fields of hvd_autotune_options."""
        values = (c_int64 * len(TUNABLES))(*[suggested.get(name, 0) for name in TUNABLES])
        native = _abi.AutotuneOptions(ctypes.sizeof(_abi.AutotuneOptions), suggested=values, **options)
        if (code := _lib.hvd_autotune(self._pointer, ctypes.byref(native))) < 0:
            self._fail(code, _last_error())

    def metrics(self) -> Sequence[int]:
        """What the engine has counted, in the order of METRICS."""
        values = _MetricValues()
        _lib.hvd_metrics(self._pointer, values, len(METRICS))
        return memoryview(values).cast("B").cast("Q")  # faster to read than the array itself

    def summaries(self) -> list[Summary]:
        """How far the ranks have come: on rank 0 all, elsewhere only this one."""
        array = (_abi.SummaryStruct * self._size)()
        count: int = _lib.hvd_summaries(self._pointer, array, self._size)
        return [
            Summary(
                each.rank,
                bool(each.known),
                each.age,
                each.steps,
                each.operations,
                each.bytes,
                each.blocked_ns,
                each.cpu_ns,
                each.resident_bytes,
                each.dropped,
                each.pending,
                each.name.decode(errors="replace"),
                each.running_ns,
                each.idle_ns,
                each.step_ns,
                each.last_ready,
                each.late_ns,
                each.rtt_ns,
                each.clock_offset_ns,
                bool(each.waited_for),
            )
            for each in array[:count]
        ]

    def next_event(self, seconds: float) -> Event | None:
        """What the engine has to tell or to ask, for a thread that does nothing else."""
        native = _abi.EventStruct()
        if _lib.hvd_next_event(self._pointer, seconds, ctypes.byref(native)) == 0:
            return None
        text = ctypes.string_at(native.text).decode(errors="replace")
        _free(native.text)
        return Event(native.kind, native.rank, native.number, native.how, text)

    def answer(self, number: int, text: str) -> None:
        """The stacks that an event asked for."""
        _lib.hvd_answer(self._pointer, number, text.encode(errors="replace"))

    def keep_recent(self, descriptor: int) -> None:
        """The last operations are also in this file in memory, for whoever reads it after our end."""
        if (code := _lib.hvd_keep_recent(self._pointer, descriptor)) < 0:
            self._fail(code, _last_error())

    def stack_signal(self, signal: int, pipe: int) -> None:
        """The handler of `signal` writes the stacks to the other end of `pipe`; -1, -1: not any more."""
        _lib.hvd_stack_signal(self._pointer, signal, pipe)

    def ask_stacks(self, rank: int, reason: str) -> int:
        """Asks for the stacks of a rank, or of all (-1). They come as events with the number that is
        returned."""
        if (number := _lib.hvd_ask_stacks(self._pointer, rank, reason.encode())) < 0:
            self._fail(number, _last_error())
        return int(number)

    def _int32_list(self, function: Any, *args: int) -> list[int]:
        capacity = 64
        while True:
            array = (c_int32 * capacity)()
            count: int = function(self._pointer, *args, array, capacity)
            if count < 0:
                raise KeyError(*args)
            if count <= capacity:
                return array[:count]
            capacity = count

    def _fail(self, code: int, text: str) -> NoReturn:
        raise self._error(code, text)


def leave_engines_to_parent() -> None:
    """In a forked child. One that has ended may be rubbish that is collected later: it is not to be
    freed here, where its threads are not."""
    for engine in list(_engines):
        engine._pointer = None


def _last_error() -> str:
    text = _lib.hvd_last_error()
    return text.decode(errors="replace") if text else "no reason given"
