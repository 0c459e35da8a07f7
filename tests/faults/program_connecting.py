"""Rank 3 dies while a process set of ranks on different hosts is connected."""

import os
import signal

import horovod.numpy as hvd
from horovod._bootstrap.world.mesh import Mesh

hvd.init(process_sets="dynamic")
if hvd.rank() == 3:
    Mesh._connectors = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign, assignment]
try:
    hvd.add_process_set([0, 3])
except hvd.HorovodInternalError as error:
    print(f"raised {error}", flush=True)
