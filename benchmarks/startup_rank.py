"""A rank of startup.py: takes the steps of a start and notes when each has ended.

Before the first step it imports only what an interpreter has loaded anyway, so that nothing else is measured.
"""

from __future__ import annotations

import os
import sys
import time


def note() -> tuple[float, float]:
    """The machine's clock, which all processes share, and the processor time that this one has used."""
    return time.clock_gettime(time.CLOCK_BOOTTIME), time.process_time()


def main(directory: str) -> None:
    """Leaves a line in the file of this rank: when the process was started, then the notes."""
    notes = [note()]
    import numpy as np

    notes.append(note())
    import horovod.numpy as hvd

    notes.append(note())
    hvd.init()
    notes.append(note())
    assert hvd.allreduce(np.ones(1), op=hvd.Sum)[0] == hvd.size()
    notes.append(note())
    rank = hvd.rank()
    hvd.shutdown()
    with open("/proc/self/stat", encoding="utf-8") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    with open(os.path.join(directory, str(rank)), "w", encoding="utf-8") as file:
        print(ticks / os.sysconf("SC_CLK_TCK"), *(number for pair in notes for number in pair), file=file)


if __name__ == "__main__":
    main(sys.argv[1])
