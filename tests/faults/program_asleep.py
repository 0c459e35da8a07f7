"""The last rank fails while rank 0 sleeps and does not look at Horovod at all."""

import sys
import time
from pathlib import Path

from fault_notes import Notes

import horovod.numpy as hvd

notes = Notes(Path(sys.argv[-1]))
hvd.init()
if hvd.rank() == 0:
    notes.write("asleep")
    time.sleep(300)
notes.wait("asleep")
if hvd.rank() == hvd.size() - 1:
    raise RuntimeError("the cause")
hvd.barrier()
