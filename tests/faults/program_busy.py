"""All processors are busy; rank 1 holds the interpreter lock for long while the others wait for it."""

import sys
import threading
import time
from pathlib import Path

import numpy as np
from fault_notes import Notes

import horovod.numpy as hvd

SECONDS = 10.0

hvd.init()
hvd.barrier()
if hvd.rank() == 1:
    sys.setswitchinterval(3600)  # no other thread of this interpreter runs meanwhile
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        pass
    hvd.barrier()
else:
    done = threading.Event()

    def compute() -> None:
        matrix = np.ones((500, 500), np.float32)
        while not done.is_set():
            matrix @ matrix

    burner = threading.Thread(target=compute)
    burner.start()
    hvd.barrier()
    done.set()
    burner.join()
assert hvd.allreduce(np.ones(3), op=hvd.Sum)[0] == hvd.size()
Notes(Path(sys.argv[-1])).write(f"done-{hvd.rank()}")
