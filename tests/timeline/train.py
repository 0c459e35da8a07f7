"""A small training in numpy; the arguments plant what makes it slow."""

from __future__ import annotations

import argparse
import contextlib
import time

import numpy as np

import horovod.numpy as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--tensors", type=int, default=4)
parser.add_argument("--numbers", type=int, default=50_000, help="of each tensor")
parser.add_argument("--compute", type=float, default=0.01, help="seconds of work in a step")
parser.add_argument("--late-rank", type=int, default=-1)
parser.add_argument("--late", type=float, default=0.0, help="seconds that it sleeps in a step")
parser.add_argument("--one-by-one", action="store_true", help="wait for each tensor before the next")
parser.add_argument("--load", type=float, default=0.0, help="seconds that every rank waits for its data")
parser.add_argument("--marked", action="store_true", help="tell the timeline so")
parser.add_argument("--mark-steps", action="store_true")
args = parser.parse_args()


def load() -> None:
    with hvd.trace("data") if args.marked else contextlib.nullcontext():
        time.sleep(args.load)


hvd.init()
tensors = [np.ones(args.numbers, np.float32) for _ in range(args.tensors)]
for _ in range(args.steps):
    if args.load:
        load()
    end = time.monotonic() + args.compute
    while time.monotonic() < end:
        pass
    if hvd.rank() == args.late_rank:
        time.sleep(args.late)
    handles = []
    for number, tensor in enumerate(tensors):
        handles.append(hvd.allreduce_async(tensor, name=f"grad.{number}", op=hvd.Sum))
        if args.one_by_one:
            hvd.synchronize(handles.pop())
    for handle in handles:
        hvd.synchronize(handle)
    if args.mark_steps:
        hvd.mark_step()
hvd.shutdown()
