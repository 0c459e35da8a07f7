"""hvd.init(comm=...) and what is said about MPI, on two or more ranks under mpirun."""

from __future__ import annotations

import gc

import numpy as np
from mpi4py import MPI
from util_expect import raises

import horovod.numpy as hvd

WORLD = MPI.COMM_WORLD


def gathered() -> list[int]:
    """The ranks of MPI's world that take part, in Horovod's order."""
    result: list[int] = hvd.allgather(np.array([WORLD.rank])).tolist()
    return result


def check_what_is_said() -> None:
    assert hvd.mpi_enabled() and hvd.mpi_built() and hvd.mpi_threads_supported() and not hvd.gloo_enabled()
    assert (hvd.rank(), hvd.size(), hvd.local_rank()) == (WORLD.rank, WORLD.size, WORLD.rank)
    hvd.shutdown()
    assert not hvd.mpi_enabled()


def check_start_again() -> None:
    for _ in range(3):
        hvd.shutdown()
        hvd.init()
        assert gathered() == list(range(WORLD.size))


def check_list_of_ranks() -> None:
    """Two worlds at once: the last and the first rank, turned around, and everybody else alone."""
    hvd.shutdown()
    pair = [WORLD.size - 1, 0]
    mine = pair if WORLD.rank in pair else [WORLD.rank]
    hvd.init(comm=mine)
    assert hvd.mpi_enabled() and gathered() == mine and hvd.rank() == mine.index(WORLD.rank)
    hvd.shutdown()


def check_communicator() -> None:
    hvd.shutdown()
    part = WORLD.Split(WORLD.rank == 0, key=-WORLD.rank)
    hvd.init(comm=part)
    assert (hvd.rank(), hvd.size()) == (part.rank, part.size)
    others = list(range(WORLD.size - 1, 0, -1))
    assert gathered() == ([0] if WORLD.rank == 0 else others)
    # The engine has a communicator of its own: the user's can go.
    part.Free()
    gc.collect()
    assert hvd.allreduce(np.ones(3), op=hvd.Sum)[0] == hvd.size()
    hvd.shutdown()


def check_messages_of_the_program_go_their_own_way() -> None:
    """Receives from anyone with any tag, in a thread of its own, while collectives run."""
    hvd.init()
    buffer = np.zeros(1)
    request = WORLD.Irecv(buffer, MPI.ANY_SOURCE, MPI.ANY_TAG)
    for _ in range(20):
        assert hvd.allreduce(np.ones(200_000, np.float32), op=hvd.Sum)[-1] == hvd.size()
    assert not request.Test()
    hvd.barrier()  # nobody sends before everybody has looked
    WORLD.Send(np.array([WORLD.rank + 0.5]), (WORLD.rank + 1) % WORLD.size, 77)
    request.Wait()
    assert buffer[0] == (WORLD.rank - 1) % WORLD.size + 0.5


def check_process_sets_from_communicators() -> None:
    """A split communicator is a set for each part; COMM_NULL means that others are in it."""
    hvd.shutdown()
    size = WORLD.size
    part = WORLD.Split(WORLD.rank == 0)
    last = WORLD.Split(0 if WORLD.rank == size - 1 else MPI.UNDEFINED)
    sets = [hvd.ProcessSet(part), hvd.ProcessSet(last)]
    if size == 2:  # then the last rank is a part already
        hvd.init(comm=WORLD, process_sets=sets[:1])
    else:
        hvd.init(comm=WORLD, process_sets=sets)
        assert sets[1].ranks == [size - 1] and sets[1].included() == (WORLD.rank == size - 1)
        assert sets[1].process_set_id == 3
    expected = [0] if WORLD.rank == 0 else list(range(1, size))
    assert sets[0].ranks == expected and sets[0].size() == len(expected) and sets[0].included()
    assert sets[0].process_set_id == (1 if WORLD.rank == 0 else 2)
    total = hvd.allreduce(np.array([float(WORLD.rank)]), op=hvd.Sum, process_set=sets[0])
    assert total[0] == sum(expected)
    with raises(NotImplementedError, "MPI communicator"):
        hvd.add_process_set(hvd.ProcessSet(part))
    hvd.barrier()  # the parts do not wait for each other
    hvd.shutdown()
    with raises(NotImplementedError, "MPI communicator"):
        hvd.init(process_sets=sets[:1])


def check_wrong_communicators() -> None:
    hvd.shutdown()

    class Pretender:
        def Get_rank(self) -> int:
            return 0

    for comm, text in (
        (MPI.COMM_NULL, "COMM_NULL"),
        (Pretender(), "mpi4py.MPI.Comm"),
        (7, "mpi4py.MPI.Comm"),
        ("0", "mpi4py.MPI.Comm"),
        ([WORLD.size], f"rank {WORLD.size} does not exist"),
        ([WORLD.rank, WORLD.rank], "each rank once"),
        ([(WORLD.rank + 1) % WORLD.size], f"rank {WORLD.rank} is not in the list"),
    ):
        with raises(ValueError, text):
            hvd.init(comm=comm)
        assert not hvd.is_initialized()
    half = WORLD.Split(WORLD.rank == 0)
    bridge = half.Create_intercomm(0, WORLD, 1 if WORLD.rank == 0 else 0)
    with raises(ValueError, "intracommunicator"):
        hvd.init(comm=bridge)
