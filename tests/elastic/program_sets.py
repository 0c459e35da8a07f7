"""Process sets, a timeline and errors over several worlds; says what it finds, until a file appears."""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np

import horovod.numpy as hvd
from horovod.common import elastic_world
from horovod.errors import HorovodInternalError


def say(**what: object) -> None:
    line = json.dumps({"worker": int(os.environ["_HOROVOD_WORKER"]), "pid": os.getpid(), **what})
    os.write(1, f"{line}\n".encode())


def main(stop: str) -> None:
    first, whole, far = hvd.ProcessSet([0]), hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])
    sets = [first, whole, far]
    hvd.init(process_sets=sets)
    while True:
        place = elastic_world.assignment()
        assert place is not None
        say(generation=place.generation, sets=[each.process_set_id for each in sets])
        try:
            # Ranks disagree: an error of the program's own, which leaves the engine alive.
            hvd.allreduce(np.zeros(1 + hvd.rank()), name="disagree")
            say(code=0)
        except HorovodInternalError as error:
            say(code=error.code)
        try:
            if whole.process_set_id is not None and whole.included():
                total = hvd.allreduce(np.ones(1), op=hvd.Sum, name="whole", process_set=whole)
                say(total=float(total[0]))
            while not hvd.allreduce(np.array([float(os.path.exists(stop))]), op=hvd.Sum, name="step")[0]:
                time.sleep(0.005)
            return
        except HorovodInternalError as error:
            say(broken=error.code)
            hvd.shutdown()
            try:
                hvd.allreduce(np.ones(1))
            except HorovodInternalError:
                say(after="fails at once")
            hvd.init()  # bare: the sets of the first one are meant


if __name__ == "__main__":
    main(sys.argv[1])
