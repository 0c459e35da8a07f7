"""An elastic training as tests of launchers write it: schedules on the command line, a log of its epochs.

Rank 0 logs each epoch. The discovery script counts these lines, so hosts change by themselves; rank 0 waits
for the notice, which it finds in `state._host_messages`. The rank of the start, by which processes are told
apart, is what the environment said then.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from typing import Any

from steps_trained import TRAINED

import horovod.numpy as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--framework", default="torch")
parser.add_argument("--logfile")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batches", type=int, default=10)
parser.add_argument("--discovery-schedule", type=json.loads, default=[])
parser.add_argument("--discovery-wait", type=int, default=3)
parser.add_argument("--exit-schedule", type=json.loads, default={})
parser.add_argument("--exit-mode", choices=["exception", "kill"], default="exception")
args = parser.parse_args()

start_rank = int(os.environ["HOROVOD_RANK"])
hostname = os.environ["HOROVOD_HOSTNAME"]
hvd.init()
trained = TRAINED[args.framework](epoch=0, batch=0, commits=0, rendezvous=0)


def leave_as_planned(state: Any) -> None:
    if start_rank in args.exit_schedule.get(f"{state.epoch},{state.batch}", []):
        if args.exit_mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("planned")


def log(state: Any) -> None:
    names = ("epoch", "batch", "commits", "rendezvous")
    line = {name: getattr(state, name) for name in names}
    line |= {"hostname": hostname, "start_rank": start_rank, "rank": hvd.rank(), "size": hvd.size()}
    with open(args.logfile, "a") as file:
        file.write(json.dumps(line) + "\n")


def hosts_of(epoch: int) -> list[str]:
    schedule: list[list[str]] = args.discovery_schedule
    return schedule[min(epoch, len(schedule) - 1)] if schedule else []


def wait_for_notice(state: Any) -> None:
    state._last_updated_timestamp = 0
    began = int(time.time())
    while state._host_messages.empty():
        if int(time.time()) - began > args.discovery_wait:
            raise TimeoutError("no notice from the launcher")
        time.sleep(0.1)


@trained.run  # type: ignore[untyped-decorator]
def train(state: Any) -> None:
    state.rendezvous += 1
    while state.epoch < args.epochs:
        while state.batch < args.batches:
            leave_as_planned(state)
            state.batch += 1
            state.commits += 1
            trained.step(hvd.size())
        if hvd.rank() == 0:
            log(state)
            if hosts_of(state.epoch) != hosts_of(state.epoch + 1):
                wait_for_notice(state)
        state.epoch += 1
        state.batch = 0
        state.commits += 1
        state.commit()


train(trained.state)
