"""Rank 1 kills itself in the middle of a job.

Each rank has a file in the directory argv[1], named by its pid, in which a survivor writes what was raised.
With the word "apart" the ranks are in sessions of their own, where the launcher, which ends process groups
when a rank has died, does not reach them: it shows that they come out by themselves.
"""

import os
import signal
import sys
from pathlib import Path

if sys.argv[2:] == ["apart"]:
    if os.fork():
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]) & 127)
    os.setsid()

import numpy as np

import horovod.numpy as hvd

hvd.init()
file = Path(sys.argv[1], str(os.getpid()))
file.touch()
hvd.barrier()  # everybody has one
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
