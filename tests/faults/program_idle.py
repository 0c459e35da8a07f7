"""Notes the processor time of all threads of this process over some seconds without an operation."""

import sys
import time
from pathlib import Path

import numpy as np
from fault_notes import Notes

import horovod.numpy as hvd

SECONDS = 5.0

hvd.init()
hvd.allreduce(np.ones(1000), name="warm up")
hvd.barrier()
before = time.process_time()
time.sleep(SECONDS)
used = time.process_time() - before
hvd.barrier()
Notes(Path(sys.argv[-1])).write(f"idle-{hvd.rank()}", share=used / SECONDS)
