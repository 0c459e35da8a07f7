"""A worker that says what it is told, until a file appears; with a child, as a data loader has."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import horovod.numpy as hvd
from horovod.common import elastic_world


def say(**what: object) -> None:
    line = json.dumps({"worker": int(os.environ["_HOROVOD_WORKER"]), "pid": os.getpid(), **what})
    os.write(1, f"{line}\n".encode())  # at once: there are two processes and a thread that write


def sockets() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the directory itself
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


def main(stop: str) -> None:
    hvd.init()
    elastic_world.subscribe(lambda sequence, result, left: say(sequence=sequence, result=result, left=left))
    place = elastic_world.assignment()
    assert place is not None
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        say(child=os.getpid(), sockets=sockets())
        while os.getppid() == parent:  # which may be killed
            time.sleep(0.1)
        os._exit(0)
    say(generation=place.generation)
    asked = Path(f"{stop}.again")
    while not os.path.exists(stop):
        if asked.exists():
            asked.unlink()
            elastic_world.restart("it was asked to")
            say(generation=(elastic_world.assignment() or place).generation)
        time.sleep(0.01)
    os.kill(child, 15)
    say(child_ended_by=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main(sys.argv[1])
