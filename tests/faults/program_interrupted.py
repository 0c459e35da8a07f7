"""Every rank waits for an operation that no other rank submits, and notes which exception ended the wait."""

import sys
import time
from pathlib import Path

import numpy as np
from fault_notes import Notes

import horovod.numpy as hvd

notes = Notes(Path(sys.argv[-1]))
hvd.init()
rank = hvd.rank()
handle = hvd.allreduce_async(np.ones(1), name=f"only on rank {rank}")
notes.write(f"pending-{rank}")
try:
    hvd.synchronize(handle)
except BaseException as error:
    notes.write(f"interrupted-{rank}", kind=type(error).__name__, when=time.monotonic())
    for other in range(hvd.size()):  # whoever leaves before would end the wait of those not yet interrupted
        notes.wait(f"interrupted-{other}")
    raise
