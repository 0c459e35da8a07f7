"""Counts steps in an elastic state, with a commit after each, until a file appears.

Arguments: the file that ends it, and one to which each world of each process adds a line of JSON.
Every step adds the number of the ranks to a sum, so that steps that are done twice, or lost, show.
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np

import horovod.numpy as hvd
from horovod.common import elastic, elastic_world


def note(path: str, **what: object) -> None:
    """One write, so that the lines of several processes don't mix."""
    place = elastic_world.assignment()
    assert place is not None
    line = {
        "worker": int(os.environ["_HOROVOD_WORKER"]),
        "pid": os.getpid(),
        "host": os.environ["HOROVOD_HOSTNAME"],
        "start_rank": int(os.environ["HOROVOD_START_RANK"]),
        "generation": place.generation,
        "rank": place.rank,
        "size": place.size,
        "time": time.time(),
        **what,
    }
    with open(path, "ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def main(stop: str, notes: str) -> None:
    hvd.init()
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, step=0, history=[])

    @elastic.run
    def train(state: elastic.ObjectState) -> None:
        first = True
        while True:
            total = hvd.allreduce(np.array([float(os.path.exists(stop)), 1.0]), op=hvd.Sum, name="step")
            if first:
                note(notes, kind="world", step=state.step, history=list(state.history))
                first = False
            if total[0]:
                break
            state.step += 1
            if not state.history or state.history[-1] != int(total[1]):
                state.history.append(int(total[1]))
            state.commit()
            time.sleep(0.01)
        note(notes, kind="end", step=state.step, history=list(state.history))

    train(state)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
