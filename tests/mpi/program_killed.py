"""Rank 1 kills itself in the middle of a job; argv[1] is a directory in which every rank leaves its pid."""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import horovod.numpy as hvd

hvd.init()
Path(sys.argv[1], str(os.getpid())).touch()
data = np.ones(1 << 20, np.float32)
try:
    for step in range(1_000_000):
        handle = hvd.allreduce_async(data, name="steps")
        if step == 20 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.synchronize(handle)
except hvd.HorovodInternalError as error:
    print(f"rank {hvd.rank()} raises: {error}", flush=True)
    os._exit(3)  # with a rank dead, MPI_Finalize may wait for ever
