"""init(), shutdown() and the questions about this
process's place: the same in every framework module."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from horovod import _core
from horovod.common import metrics as measurements
from horovod.common import session as sessions
from horovod.common import startup, steps, util
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.common.session import state
from horovod.errors import HorovodInternalError

# What every framework module has. Listed here and nowhere else: the modules add it to theirs.
__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "dump_stacks",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mark_step",
    "metrics",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "observe",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "trace",
]

# Plain ints: users compare them with == and frameworks pass them as attributes of operations.
Average: int = _core.AVERAGE
Sum: int = _core.SUM
Adasum: int = _core.ADASUM
Min: int = _core.MIN
Max: int = _core.MAX
Product: int = _core.PRODUCT


class HorovodBasics:
    """The functions of this module as methods, for tools that expect `mpi_ops._basics`.

    Has no state.
    """

    def init(self, comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
        """Joins this process to the job.

        Does nothing but register `process_sets` if that is done already.

        `comm`: None for all ranks, a list of launched ranks that form a world of their own, in that
        order, or an mpi4py communicator of those ranks, which also makes MPI carry the data.
        `process_sets`: sets to register, the same on all ranks, or "dynamic" to add and remove sets
        later. With an mpi4py communicator they may be made from such, each rank giving those that
        it is in.
        """
        startup.start(comm, process_sets)

    def shutdown(self) -> None:
        """Ends the engine on all ranks; init() may be called again.

        Harmless when not initialised.
        """
        startup.stop()

    def is_initialized(self) -> bool:
        """Whether init() was called and shutdown() was not."""
        return state.session is not None

    def rank(self) -> int:
        """This process's number among all, from 0."""
        return sessions.for_query().place.rank

    def size(self) -> int:
        """Number of processes."""
        return sessions.for_query().place.size

    def local_rank(self) -> int:
        """This process's number among those of its host."""
        return sessions.for_query().place.local_rank

    def local_size(self) -> int:
        """Number of processes on this host."""
        return sessions.for_query().place.local_size

    def cross_rank(self) -> int:
        """This host's number among those that have a process with this local rank."""
        return sessions.for_query().place.cross_rank

    def cross_size(self) -> int:
        """Number of hosts that have a process with this local rank."""
        return sessions.for_query().place.cross_size

    def is_homogeneous(self) -> bool:
        """Whether every host has the same number of processes."""
        return sessions.for_query().place.homogeneous

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """Starts to record a timeline; needs HOROVOD_TIMELINE to
        be set at init(), for example to DYNAMIC."""
        session = sessions.for_query()
        if not session.timeline:
            raise ValueError(
                "a timeline can be started only if HOROVOD_TIMELINE is set (a path or DYNAMIC) at hvd.init()"
            )
        try:
            session.engine.timeline_start(file_path, mark_cycles, session.timeline_of_all)
        except RuntimeError as error:
            raise ValueError(f"cannot start the timeline {file_path}: {error}") from error
        session.timeline_started(file_path)

    def stop_timeline(self) -> None:
        """Ends the timeline and completes its file. No error if there is none."""
        session = sessions.for_query()
        session.engine.timeline_stop()
        session.tell_of_parts()

    def trace(self, name: str) -> contextlib.AbstractContextManager[None]:
        """What happens within is a bar in the timeline of all ranks: `with hvd.trace("data"): ...`."""
        return steps.marked(sessions.for_query().engine, name.encode())

    def mark_step(self, name: str = "step") -> None:
        """A step of the training ends here. Optimizers and tapes say so themselves: where this is called,
        that does not count any more."""
        sessions.for_query().engine.mark(name.encode(), _core.MARK_STEP)

    def dump_stacks(self) -> dict[int, str]:
        """Where the threads of the ranks are, by rank: on rank 0 of all that answer within some seconds,
        elsewhere of this one. A line for each thread, the innermost frame first."""
        session = sessions.for_query()
        place = session.place
        return session.observer.dump(-1, place.size if place.rank == 0 else 1)

    def mpi_threads_supported(self) -> bool:
        """True: MPI is used only if it may be called from several threads.

        ValueError without MPI.
        """
        if not sessions.for_query().mpi:
            raise ValueError("MPI is not in use, so there is nothing to say about its threads")
        return True

    def mpi_enabled(self) -> bool:
        """Whether MPI carries the data."""
        return state.session is not None and state.session.mpi

    def mpi_built(self) -> bool:
        """Whether MPI can be used: mpi4py and an MPI library are there."""
        return util.mpi_built()

    def gloo_enabled(self) -> bool:
        """Whether the engine without MPI, which stands in Gloo's place, carries the data."""
        return not self.mpi_enabled()

    def gloo_built(self) -> bool:
        """Whether the engine without MPI can be used."""
        return True

    def nccl_built(self) -> int:
        """NCCL's version code, 0 without."""
        return 0

    def ddl_built(self) -> bool:
        """Whether IBM's DDL can be used."""
        return False

    def ccl_built(self) -> bool:
        """Whether oneCCL can be used."""
        return False

    def cuda_built(self) -> bool:
        """Whether tensors may be on CUDA devices."""
        return False

    def rocm_built(self) -> bool:
        """Whether tensors may be on ROCm devices."""
        return False

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        engine = sessions.for_query().engine
        return {number: engine.process_set_ranks(number) or [] for number in engine.process_set_ids()}


_basics = HorovodBasics()

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
rank = _basics.rank
size = _basics.size
local_rank = _basics.local_rank
local_size = _basics.local_size
cross_rank = _basics.cross_rank
cross_size = _basics.cross_size
is_homogeneous = _basics.is_homogeneous
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
trace = _basics.trace
mark_step = _basics.mark_step
metrics = measurements.metrics
observe = measurements.observe
dump_stacks = _basics.dump_stacks
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built
