"""Ranks of three groups whose leaders form a chain, or of one host. Argument: kill:<rank>, or late:<rank>."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

import horovod.numpy as hvd
from horovod._bootstrap.world import tree

tree.FAN_OUT = 1
what, _, number = sys.argv[1].partition(":")
hvd.init()
concerned = hvd.rank() == int(number)
one = np.ones(4, np.float32)
try:
    for _ in range(30):
        assert hvd.allreduce(one, name="steps", op=hvd.Sum)[0] == hvd.size()
    before = hvd.metrics()["control_messages_total"]
    for _ in range(20):
        hvd.allreduce(one, name="steps", op=hvd.Sum)
    after = hvd.metrics()["control_messages_total"]
    hvd.barrier()
    if hvd.rank() == 0:
        print(f"sent {(after['sent'] - before['sent']) / 20:g}", flush=True)
    if concerned and what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if concerned and what == "late":
        time.sleep(2.5)
    hvd.allreduce(one, name="last")
    hvd.barrier()
    print(f"rank {hvd.rank()} has ended", flush=True)
except hvd.HorovodInternalError as error:
    print(f"rank {hvd.rank()} says: {error}", flush=True)
