"""A worker that sums ones until a file appears, and goes on in the next world when one breaks.

Prints a line of JSON for each world that it is in.
"""

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
    print(json.dumps({"worker": int(os.environ["_HOROVOD_WORKER"]), "pid": os.getpid(), **what}), flush=True)


def main(stop: str) -> None:
    hvd.init()
    while True:
        place = elastic_world.assignment()
        assert place is not None
        say(
            generation=place.generation,
            rank=hvd.rank(),
            size=hvd.size(),
            local_rank=hvd.local_rank(),
            environ=os.environ["HOROVOD_RANK"] + "/" + os.environ["HOROVOD_SIZE"],
            start_rank=os.environ["HOROVOD_START_RANK"],
            time=time.time(),
        )
        try:
            while True:
                over = hvd.allreduce(np.array([float(os.path.exists(stop)), 1.0]), op=hvd.Sum, name="step")
                assert over[1] == hvd.size()
                elastic_world.progress.commit += 1
                if over[0]:
                    return
                time.sleep(0.005)
        except HorovodInternalError as error:
            elastic_world.progress.rolled_back = True
            elastic_world.restart(str(error))


if __name__ == "__main__":
    main(sys.argv[1])
