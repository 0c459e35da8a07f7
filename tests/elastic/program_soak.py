"""Trains while ranks are killed at random moments; what it computes does not depend on them.

The data of a step are chosen by rank and step. In the end all write the digest of the parameters; survivors
write now and then what they hold: descriptors, threads, memory. Arguments: directory, steps, kills. In plain
numpy, so that a new process is there in less than a second.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import horovod.numpy as hvd

directory, steps, kills = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
MEAN_SECONDS = 6.0  # until a process dies
holders = directory / "holders"  # a file for each process that has the state
killed = directory / "killed"  # a line for each that was killed


def held() -> dict[str, float]:
    """What this process holds on to."""
    status = Path("/proc/self/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "mebibytes": int(resident.split()[1]) / 1024,
    }


def note(kind: str, **what: Any) -> None:
    line = json.dumps({"kind": kind, "pid": os.getpid(), "time": time.time(), **what})
    with open(directory / "notes", "ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def kills_left() -> int:
    return kills - len(killed.read_text().split())


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One process at a time."""
    with open(directory / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def die_some_day() -> None:
    """At a random moment, wherever the process is then, but not as the last that has the state."""
    chance = random.Random(f"{os.getpid()} {time.time_ns()}")
    while True:
        time.sleep(chance.expovariate(1 / MEAN_SECONDS))
        with alone():
            others = {entry.name for entry in holders.iterdir()} - {str(os.getpid())}
            if kills_left() > 0 and others:
                (holders / str(os.getpid())).unlink(missing_ok=True)
                with open(killed, "a") as file:
                    file.write(f"{os.getpid()}\n")
                note("kill")
                os.kill(os.getpid(), signal.SIGKILL)


# One lives through all of it: what it holds in the end is what piles up.
if kills and os.environ["_HOROVOD_WORKER"] != "4":
    threading.Thread(target=die_some_day, daemon=True).start()
hvd.elastic.ObjectState(hvd.broadcast_object, lambda: 0)  # loads it
hvd.init()
first = np.random.default_rng(1)
state = hvd.elastic.ObjectState(
    hvd.broadcast_object,
    hvd.rank,
    weights=[first.normal(size=(16, 32)), first.normal(size=(32, 4))],
    momenta=[np.zeros((16, 32)), np.zeros((32, 4))],
    step=0,
)
worlds = 0
left: dict[str, float] = {}  # what is held in the end


@hvd.elastic.run
def train(state: Any) -> None:
    global worlds
    worlds += 1
    with alone():
        (holders / str(os.getpid())).touch()
    if worlds in (2, 10) or worlds % 50 == 0:
        note("held", worlds=worlds, **held())
    while state.step < steps or hvd.broadcast_object(kills_left(), 0, "kills") > 0:
        if state.step < steps:
            step(state)
        else:
            time.sleep(0.01)  # all is computed, but not all are killed
        state.commit()
    left.update(held())
    hvd.barrier()  # the engine of all ends when the first one leaves


def step(state: Any) -> None:
    """One step of a network with a hidden layer that learns to give nothing back."""
    inputs = np.random.default_rng([state.step, hvd.rank()]).normal(size=(8, 16))
    hidden = np.tanh(inputs @ state.weights[0])
    output = hidden @ state.weights[1]
    backward = (output @ state.weights[1].T) * (1 - hidden**2)
    gradients = [inputs.T @ backward, hidden.T @ output]
    for number, gradient in enumerate(gradients):
        average = hvd.allreduce(gradient, name=f"gradient.{number}")
        state.momenta[number] = 0.9 * state.momenta[number] + average
        state.weights[number] -= 0.001 * state.momenta[number]
    state.step += 1


train(state)
digest = hashlib.sha256(b"".join(weight.tobytes() for weight in state.weights)).hexdigest()
note("end", rank=hvd.rank(), digest=digest, worlds=worlds, **left)
