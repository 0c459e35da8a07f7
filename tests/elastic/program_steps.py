"""Counts steps in an elastic state, with a commit after each, until a file appears.

Arguments: the file that ends it, one to which each world of each process adds a line of JSON, and what
trains a weight beside the count; see steps_trained.py. The weight loses 1 at each step, so that steps that
are done twice, or lost, show.
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np
from steps_trained import TRAINED

import horovod.numpy as hvd
from horovod.common import elastic_world


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


def main(stop: str, notes: str, framework: str) -> None:
    if int(os.environ["HOROVOD_START_RANK"]) > 0:
        time.sleep(float(os.environ.get("SLOW_START", "0")))
    hvd.init()
    trained = TRAINED[framework]()

    @trained.run
    def train(state: object) -> None:
        first = True
        while True:
            total = hvd.allreduce(np.array([float(os.path.exists(stop)), 1.0]), op=hvd.Sum, name="step")
            if first:
                note(notes, kind="world", **trained.reached())
                first = False
            if total[0]:
                break
            trained.step(int(total[1]))
            if "LOUD" in os.environ:
                print("x" * int(os.environ["LOUD"]), flush=True)
            if trained.state.step == 1:
                note(notes, kind="committed", **trained.reached())
                if os.environ["HOROVOD_START_RANK"] == "1" and "BUSY" in os.environ:
                    note(notes, kind="busy", **trained.reached())
                    time.sleep(float(os.environ["BUSY"]))  # as an evaluation by one rank
            time.sleep(0.01)
        note(notes, kind="end", **trained.reached())

    train(trained.state)


if __name__ == "__main__":
    main(*sys.argv[1:])
