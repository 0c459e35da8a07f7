"""One rank ends normally without hvd.shutdown() while the others compute; they note their next error."""

import sys
import time
from pathlib import Path

import numpy as np
import psutil
from fault_notes import PATIENCE, Notes

import horovod.numpy as hvd

notes = Notes(Path(sys.argv[-1]))
leaver = int(sys.argv[1])
hvd.init()
rank = hvd.rank()
hvd.allreduce(np.ones(10), name="all is well")
notes.write(f"computing-{rank}")
if rank == leaver:
    for other in range(hvd.size()):
        notes.wait(f"computing-{other}")
    notes.write("leaving")
    sys.exit(0)
pid = notes.wait("leaving")["pid"]
deadline = time.monotonic() + PATIENCE
while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
    assert time.monotonic() < deadline, "the process has not ended"
    time.sleep(0.005)
texts = []
for _ in range(2):
    try:
        hvd.allreduce(np.ones(10), name="next")
        texts.append("no error")
    except hvd.HorovodInternalError as error:
        texts.append(str(error))
notes.write(f"saw-{rank}", texts=texts)
