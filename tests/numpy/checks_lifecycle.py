"""init() and shutdown() over and over, in other worlds, and forks. Two ranks or more."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import time
import traceback
import weakref

import numpy as np
import psutil
from util_expect import raises

import horovod.numpy as hvd
from horovod import _core
from horovod.common import session as sessions


def total() -> float:
    return float(hvd.allreduce(np.ones(1), op=hvd.Sum)[0])


def restart(**arguments: object) -> None:
    hvd.shutdown()
    hvd.init(**arguments)  # type: ignore[arg-type]


def check_init_is_idempotent() -> None:
    hvd.init()
    hvd.init(process_sets=[])
    assert hvd.is_initialized() and total() == hvd.size()


def check_everything_needs_init() -> None:
    hvd.shutdown()
    hvd.shutdown()
    assert not hvd.is_initialized()
    for question in (hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size):
        with raises(ValueError, "hvd.init()"):
            question()
    with raises(ValueError, "hvd.init()"):
        hvd.stop_timeline()
    with raises(ValueError, "hvd.init()"):
        hvd.add_process_set([0])
    for call in (lambda: hvd.allreduce(np.ones(1)), hvd.join, hvd.barrier, lambda: hvd.broadcast_object(1)):
        with raises(hvd.HorovodInternalError, "hvd.init()"):
            call()
    hvd.init()
    assert total() == hvd.size()


def check_many_cycles() -> None:
    """Hundreds of times, without leaking descriptors, threads or memory."""
    cycles = int(os.environ.get("CHECK_CYCLES", "300"))
    process = psutil.Process()

    def resources() -> tuple[int, int, int]:
        gc.collect()
        hvd.barrier()  # a rank that is ahead and shuts down would end threads here
        found = process.num_fds(), process.num_threads(), process.memory_info().rss
        hvd.barrier()
        return found

    for _ in range(10):
        restart()
        assert total() == hvd.size()
    before = resources()
    slowest = 0.0
    for _ in range(cycles):
        start = time.monotonic()
        restart()
        assert total() == hvd.size()
        slowest = max(slowest, time.monotonic() - start)
    after = resources()
    assert after[:2] == before[:2], (before, after)
    assert after[2] - before[2] < 20 << 20, (before, after)
    if hvd.rank() == 0:
        print(f"slowest of {cycles} cycles: {slowest:.3f} s")


def check_static_process_sets() -> None:
    rank, size = hvd.rank(), hvd.size()
    first, last = hvd.ProcessSet([0]), hvd.ProcessSet([size - 1])
    restart(process_sets=[first, last])
    assert (first.process_set_id, last.process_set_id) == (1, 2)
    for process_set in (first, last):
        if process_set.included():
            assert hvd.allreduce(np.array([7.0]), process_set=process_set)[0] == 7
    with raises(ValueError, "dynamic"):
        hvd.add_process_set([0])
    with raises(ValueError, "dynamic"):
        hvd.remove_process_set(first)
    hvd.barrier()  # a shutdown ends what is still under way on other ranks
    hvd.shutdown()
    assert first.process_set_id is None and hvd.global_process_set.ranks is None
    for wrong in ([first, hvd.ProcessSet([0])], [hvd.ProcessSet(range(size))], [hvd.ProcessSet([size])]):
        with raises(ValueError):
            hvd.init(process_sets=wrong)
        hvd.init(process_sets=[first])
        assert first.process_set_id == 1
        assert total() == size
        hvd.shutdown()
    for nonsense in ("static", [5], [[0]]):
        with raises(ValueError, "process_sets"):
            hvd.init(process_sets=nonsense)  # type: ignore[arg-type]
    with raises(ValueError):
        hvd.init(process_sets=[hvd.ProcessSet([0])] if rank == 0 else [])
    hvd.init()
    assert total() == size


def check_dynamic_process_sets() -> None:
    restart(process_sets="Dynamic")
    one = hvd.add_process_set([0])
    assert one.process_set_id == 1
    hvd.shutdown()
    assert one.process_set_id is None
    del os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"]
    hvd.init()


def check_worlds_of_other_sizes() -> None:
    """As after an elastic change: the environment tells another place."""
    rank, size = hvd.rank(), hvd.size()
    launched = {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}
    for _ in range(3):
        hvd.shutdown()
        os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"] = "0", "1"
        hvd.init()
        assert (hvd.rank(), hvd.size()) == (0, 1)
        assert total() == 1
        assert hvd.allgather_object(rank) == [rank]
        hvd.shutdown()
        os.environ.update(launched)
        hvd.init()
        assert (hvd.rank(), hvd.size()) == (rank, size)
        assert total() == size
    if size > 2:
        hvd.shutdown()
        if rank < size - 1:
            shrunk = {"HOROVOD_SIZE": str(size - 1), "HOROVOD_LOCAL_SIZE": str(size - 1)}
            os.environ.update(shrunk)
            hvd.init()
            assert total() == size - 1
            hvd.shutdown()
            os.environ.update(launched)
        hvd.init()
        assert total() == size


def check_sub_communicators() -> None:
    rank, size = hvd.rank(), hvd.size()
    hvd.shutdown()
    for wrong in (5, "01", [0.5], [0, 0], [0, size], [r for r in range(size) if r != rank]):
        with raises(ValueError, "comm"):
            hvd.init(comm=wrong)
    backwards = list(reversed(range(size)))
    hvd.init(comm=backwards)
    assert hvd.rank() == size - 1 - rank and hvd.local_rank() == hvd.rank()
    assert hvd.allgather(np.array([rank])).tolist() == backwards
    hvd.shutdown()
    mine = [0] if rank == 0 else list(range(1, size))
    hvd.init(comm=mine)
    assert (hvd.rank(), hvd.size(), hvd.local_size()) == (mine.index(rank), len(mine), len(mine))
    assert total() == len(mine)
    restart(comm=[])
    assert hvd.size() == size and total() == size


def check_shutdown_ends_operations_everywhere() -> None:
    hvd.barrier()
    if hvd.rank() == 0:
        # The others have submitted it before rank 0 leaves.
        hvd.barrier()
    else:
        handle = hvd.allreduce_async(np.ones(3), name="never on rank 0")
        hvd.barrier()
        with raises(hvd.HorovodInternalError):
            hvd.synchronize(handle)
        with raises(hvd.HorovodInternalError):
            hvd.allreduce(np.ones(3), name="after the shutdown of rank 0")
    restart()
    assert total() == hvd.size()


def check_handles_survive_shutdown() -> None:
    done = hvd.allgather_async(np.array([hvd.rank()]), name="done")
    while not hvd.poll(done):
        pass
    pending = hvd.allreduce_async(np.ones(1), name="own") if hvd.rank() == 0 else None
    hvd.barrier()
    hvd.shutdown()
    assert hvd.synchronize(done).tolist() == list(range(int(os.environ["HOROVOD_SIZE"])))
    if pending is not None:
        with raises(hvd.HorovodInternalError):
            hvd.synchronize(pending)
    hvd.init()


def check_waiting_thread_during_shutdown() -> None:
    hvd.barrier()
    outcome: list[object] = []

    def wait() -> None:
        try:
            outcome.append(hvd.allreduce(np.ones(1), name="alone"))
        except hvd.HorovodInternalError as error:
            outcome.append(error)

    if hvd.rank() == 0:
        thread = threading.Thread(target=wait)
        thread.start()
    restart()
    if hvd.rank() == 0:
        thread.join(30)
        assert isinstance(outcome[0], hvd.HorovodInternalError), outcome
    assert total() == hvd.size()


def check_fork() -> None:
    """A child knows nothing of the engine, and the parent goes on, also with operations under way."""
    handle = hvd.allreduce_async(np.ones(1000), name="across the fork", op=hvd.Sum)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert not hvd.is_initialized()
            assert hvd.synchronize(handle) is None
            # What native adapters ask. The engine's threads are not here; to wait for them would be for ever.
            assert _core._lib.hvd_default_place((ctypes.c_int32 * 4)()) == _core.FAILED_PRECONDITION
            hvd.shutdown()
            with raises(ValueError, "hvd.init()"):
                hvd.rank()
            os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"] = "0", "1"
            hvd.init()
            assert total() == 1
            hvd.shutdown()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    assert hvd.synchronize(handle)[0] == hvd.size()
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"{status}: see the child's traceback"
    assert total() == hvd.size()


def check_a_forked_child_does_not_free_engines_that_have_ended() -> None:
    """Such as one that is rubbish, which is collected there: their threads are the parent's."""
    gc.disable()
    try:
        rubbish: list[object] = [sessions.for_query().engine]
        rubbish.append(rubbish)
        restart()
        del rubbish
        child = os.fork()
        if child == 0:
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        gc.enable()
    gc.collect()
    assert total() == hvd.size()


def check_a_forked_child_does_not_hide_a_shutdown() -> None:
    """Descriptors that a living child inherited must not keep the connections open."""
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        start = time.monotonic()
        restart()
        assert total() == hvd.size()
        assert time.monotonic() - start < 25  # HOROVOD_GLOO_TIMEOUT_SECONDS is 30
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def check_keyboard_interrupt_of_a_blocking_call() -> None:
    """What the engine still writes to stays, also when many other names have come."""
    hvd.barrier()
    if hvd.rank() == 0:
        given = np.ones(1000)
        gone = weakref.ref(given)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            with raises(KeyboardInterrupt):
                hvd.allreduce(given, name="interrupted call", op=hvd.Sum)
        finally:
            timer.join()
        del given
        engine = sessions.for_collective().engine
        for number in range(_core._MOST_PREPARED + 1):  # as calls with other names do
            engine.prepared(_core.ALLREDUCE, "allreduce", f"other {number}", 0, (1,), 5, _core.SUM, 1.0, 1.0)
        gc.collect()
        assert gone() is not None
        with raises(ValueError, "still pending"):
            hvd.allreduce(np.ones(1000), name="interrupted call", op=hvd.Sum)
    else:
        time.sleep(0.6)
    hvd.barrier()
    if hvd.rank() != 0:
        assert hvd.allreduce(np.ones(1000), name="interrupted call", op=hvd.Sum)[0] == hvd.size()
    hvd.barrier()
    assert hvd.allreduce(np.ones(1000), name="interrupted call", op=hvd.Sum)[0] == hvd.size()


def check_keyboard_interrupt_during_a_wait() -> None:
    hvd.barrier()
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(np.ones(1), name="interrupted", op=hvd.Sum)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        start = time.monotonic()
        # So long a slice shows that it is the signal that ends the wait.
        usual, _core._WAIT_SLICE = _core._WAIT_SLICE, 1000.0
        with raises(KeyboardInterrupt):
            hvd.synchronize(handle)
        assert time.monotonic() - start < 100, time.monotonic() - start
        _core._WAIT_SLICE = usual
        hvd.barrier()
    else:
        hvd.barrier()
        handle = hvd.allreduce_async(np.ones(1), name="interrupted", op=hvd.Sum)
    assert hvd.synchronize(handle)[0] == hvd.size()
