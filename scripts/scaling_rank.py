"""A rank of a real run that `scaling.py --check` compares the simulator with: figures of rank 0 as JSON.

Arguments: how many blocking operations, how many steps, how many tensors a step has.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np

import horovod.numpy as hvd


def messages() -> int:
    """Of the control plane, at this rank, while no other rank goes on."""
    time.sleep(0.3)
    counted = hvd.metrics()["control_messages_total"]
    assert isinstance(counted, dict)
    total = int(counted["sent"]) + int(counted["received"])
    time.sleep(0.3)
    return total


def main() -> None:
    """First time and again, one after the other and many at once."""
    operations, steps, tensors = map(int, sys.argv[1:])
    begin = time.perf_counter()
    hvd.init()
    start_seconds = time.perf_counter() - begin
    one = np.ones(1, np.float32)
    hvd.barrier()  # ranks that start far apart say more
    before = messages()
    hvd.allreduce(one, name="one")
    first = messages() - before
    for _ in range(5):
        hvd.allreduce(one, name="one")
    before, times = messages(), []
    for _ in range(operations):
        begin = time.perf_counter()
        hvd.allreduce(one, name="one")
        times.append(time.perf_counter() - begin)
    cached = (messages() - before) / operations
    gradients = [np.ones(1, np.float32) for _ in range(tensors)]
    step_times = []
    for _ in range(steps + 1):
        hvd.barrier()
        begin = time.perf_counter()
        handles = [hvd.allreduce_async(each, name=f"gradient.{i}") for i, each in enumerate(gradients)]
        for handle in handles:
            hvd.synchronize(handle)
        step_times.append(time.perf_counter() - begin)
    if hvd.rank() == 0:
        figures = {
            "start_seconds": start_seconds,
            "first_messages": first,
            "cached_messages": cached,
            "cached_seconds": statistics.median(times),
            "step_seconds": statistics.median(step_times[1:]),
        }
        print(json.dumps(figures), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
