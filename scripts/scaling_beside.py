"""A rank of one of several jobs that `scaling.py --check` starts side by side: what steps of many tensors
cost grows with the number of ranks on the machine, also if they belong to other jobs.

Arguments: when to begin, by the clock, for how many seconds, how many tensors a step has. Rank 0 writes the
seconds of a step, the mean.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import horovod.numpy as hvd

ROUND = 5  # steps between two looks at the clock


def main() -> None:
    """Begins with the other jobs, and is not measured after their end."""
    begin, seconds, count = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    hvd.init()
    tensors = [np.ones(1, np.float32) for _ in range(count)]
    steps = 0
    time.sleep(max(0.0, begin - time.time()))
    started = now = time.time()
    while now < begin + seconds:
        for _ in range(ROUND):
            handles = [hvd.allreduce_async(each, name=f"gradient.{i}") for i, each in enumerate(tensors)]
            for handle in handles:
                hvd.synchronize(handle)
        steps += ROUND
        now = float(hvd.broadcast(np.array(time.time()), 0, name="now"))
    if hvd.rank() == 0:
        print((now - started) / steps, flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
