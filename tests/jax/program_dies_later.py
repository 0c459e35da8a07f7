"""Rank 1 dies while the others' program waits for it; the argument says where they are then.

`later`: the call has returned, and the result is asked for; `exit`: the script is over. All print what they
do and when, by a clock that is the same for all processes of a host.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from typing import Any


def say(what: str) -> None:
    print(f"rank {os.environ['HOROVOD_RANK']} {what} at {time.monotonic():.3f} s", flush=True)


where = sys.argv[1]
if where == "exit":
    atexit.register(say, "is gone")  # the first one, so that it comes last: after Horovod's and JAX's own

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import horovod.jax as hvd  # noqa: E402

hvd.init()


@jax.jit
def large(x: Any) -> Any:
    for _ in range(8):
        x = x @ x / 500
    return hvd.allreduce(x, name="large")


start = jnp.ones((500, 500))
jax.block_until_ready(large(start))
hvd.barrier()
if hvd.rank() == 1:
    time.sleep(1)
    say("dies")
    os.kill(os.getpid(), signal.SIGKILL)
result = large(start)
say("goes on")
if where == "exit":
    sys.exit(0)
try:
    jax.block_until_ready(result)
except (RuntimeError, ValueError) as error:  # JAX knows both for programs
    say("heard of it")
    assert "rank 1" in str(error).lower() and "Horovod allreduce" in str(error), error
    sys.exit(0)
raise SystemExit("no error")
