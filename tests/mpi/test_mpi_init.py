"""hvd.init() under mpirun: communicators, process sets, and what is refused."""

import sys

import mpi_setup


def refused(*lines: str, **env: str) -> str:
    """What a single rank says before it ends with code 1."""
    program = "\n".join([*lines, "import horovod.numpy as hvd", "hvd.init()"])
    outcome = mpi_setup.get("debian").run(1, "-c", program, timeout=60, **env)
    assert outcome.code == 1, outcome.output
    return outcome.output


def test_less_than_all_threads_is_refused() -> None:
    output = refused("import mpi4py", 'mpi4py.rc.thread_level = "funneled"')
    assert "ValueError" in output and "MPI_THREAD_MULTIPLE" in output


def test_encryption_is_refused() -> None:
    assert "HOROVOD_ENCRYPTION=data: MPI carries the data" in refused(HOROVOD_ENCRYPTION="data")


def test_a_forked_process_is_refused() -> None:
    program = """
import os
import horovod.numpy as hvd

hvd.init()
if os.fork() == 0:
    try:
        hvd.init()
    except ValueError as error:
        print(error, flush=True)
    os._exit(0)  # else mpi4py would finalise the parent's MPI
os.wait()
print(hvd.allreduce(2.0, op=hvd.Sum))
"""
    outcome = mpi_setup.get("debian").run(1, "-c", program, timeout=60)
    assert outcome.code == 0 and "MPI can't be used in a forked process" in outcome.output, outcome.output
    assert "2.0" in outcome.output


def test_another_place_in_mpi_than_in_the_environment_is_refused() -> None:
    output = refused(HOROVOD_RANK="1", HOROVOD_SIZE="2", HOROVOD_LOCAL_RANK="1", HOROVOD_LOCAL_SIZE="2",
                     HOROVOD_CROSS_RANK="0", HOROVOD_CROSS_SIZE="1", HOROVOD_GLOO_RENDEZVOUS_ADDR="127.0.0.1",
                     HOROVOD_GLOO_RENDEZVOUS_PORT="9", _HOROVOD_SECRET_KEY="0" * 64)  # fmt: skip
    assert "rank 1 of 2 according to the environment, but 0 of 1 in MPI.COMM_WORLD" in output


def test_our_own_transports_under_mpirun() -> None:
    """The communicator counts, but HOROVOD_CPU_OPERATIONS decides who carries the data."""
    program = (
        "from mpi4py import MPI; import horovod.numpy as hvd; hvd.init(comm=MPI.COMM_WORLD);"
        "assert hvd.size() == 2 and hvd.gloo_enabled() and not hvd.mpi_enabled(); hvd.barrier()"
    )
    mpi = mpi_setup.get("debian")
    words = [str(mpi.mpirun), "-np", "2", sys.executable, "-c", program]
    outcome = mpi.start(words, 60, HOROVOD_CPU_OPERATIONS="gloo")
    assert outcome.code == 0, outcome.output
