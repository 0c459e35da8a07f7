"""An optimizer of a process set whose members are others in each world; says what gradients it makes."""

from __future__ import annotations

import json
import os
import sys
import time

import torch

import horovod.torch as hvd
from horovod.common import elastic_world


def say(**what: object) -> None:
    line = json.dumps({"worker": int(os.environ["_HOROVOD_WORKER"]), **what})
    os.write(1, f"{line}\n".encode())


def main(stop: str) -> None:
    members = hvd.ProcessSet([1, 2])
    hvd.init(process_sets=[members])
    sizes = {"small": 1, "large": 1 << 18}  # held back until the end of the step, and sent at once
    weights = {name: torch.ones(size, requires_grad=True) for name, size in sizes.items()}
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(weights.values(), lr=0.1), weights.items(), groups=2, process_set=members
    )
    while True:
        place = elastic_world.assignment()
        assert place is not None
        say(generation=place.generation)
        before = None
        try:
            while not os.path.exists(stop):
                optimizer.zero_grad()
                try:
                    sum(weight.sum() * (hvd.rank() + 1) for weight in weights.values()).backward()
                    optimizer.synchronize()
                except ValueError as error:
                    say(refused=str(error))
                    return
                found = [float(weight.grad[-1]) for weight in weights.values()]
                if found != before:
                    say(gradients=[*found, hvd.rank(), place.generation])
                before = found
                hvd.allreduce(torch.zeros(1), name="step")
                time.sleep(0.005)
            return
        except hvd.HorovodInternalError:
            hvd.shutdown()
            hvd.init()


if __name__ == "__main__":
    main(sys.argv[1])
