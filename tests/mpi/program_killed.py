"""Rank 1 kills itself in the middle of a job. Each rank has a file in the directory argv[1], named by its pid,
in which a survivor writes what was raised: mpirun may end before it has passed on its output."""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import horovod.numpy as hvd

# MPICH's launcher, told to leave the survivors alone, sends them this instead, and they would end by it.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
hvd.init()
file = Path(sys.argv[1], str(os.getpid()))
file.touch()
data = np.ones(1 << 20, np.float32)
try:
    for step in range(1_000_000):
        handle = hvd.allreduce_async(data, name="steps")
        if step == 20 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.synchronize(handle)
except hvd.HorovodInternalError as error:
    file.write_text(f"rank {hvd.rank()} raises: {error}")
    os._exit(3)  # with a rank dead, MPI_Finalize may wait for ever
