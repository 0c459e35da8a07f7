"""One of the processes of `scaling.py --check` that take turns, each in a world of its own. What a turn costs
grows with their number, as each finds the caches full of what the others have done.

Arguments: descriptors of the pipe whose byte is a turn and of that of the next process, and how many turns.
Writes how long it took from one of its turns to the next, in seconds.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from itertools import pairwise

import numpy as np

import horovod.numpy as hvd


def main() -> None:
    """Of the first two turns some are spent on what happens once."""
    mine, following, turns = map(int, sys.argv[1:])
    hvd.init()
    one = np.ones(1, np.float32)
    times = []
    for _ in range(turns):
        os.read(mine, 1)
        times.append(time.perf_counter())
        hvd.allreduce(one, name="one")
        os.write(following, b"x")
    print(statistics.median(later - sooner for sooner, later in pairwise(times[2:])), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
