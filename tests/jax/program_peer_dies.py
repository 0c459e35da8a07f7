"""Rank 1 dies; the others must hear of it at once, wherever they are: the argument says where.

`call`: within a program that runs in the call; `later`: in one that is under way, when its result is asked
for; `exit`: at the end of the script, while a program is still under way.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp

import horovod.jax as hvd

where = sys.argv[1]
hvd.init()
small = jax.jit(lambda x: hvd.allreduce(x, name="small"))


@jax.jit
def large(x: Any) -> Any:
    for _ in range(8):
        x = x @ x / 500
    return hvd.allreduce(x, name="large")


jax.block_until_ready((small(jnp.ones(3)), large(jnp.ones((500, 500)))))
hvd.barrier()
if hvd.rank() == 1:
    if where == "exit":
        time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
start = time.monotonic()
if where == "exit":
    large(jnp.ones((500, 500)))
    print(f"rank {hvd.rank()} leaves", flush=True)
    sys.exit(0)
try:
    jax.block_until_ready(small(jnp.ones(3)) if where == "call" else large(jnp.ones((500, 500))))
except (RuntimeError, ValueError) as error:  # JAX knows both for programs
    took = time.monotonic() - start
    assert "rank 1" in str(error).lower() and "Horovod allreduce" in str(error), error
    assert took < 1.0 or where == "later", took
    print(f"rank {hvd.rank()} heard of it after {took:.3f} s: {error}", flush=True)
    sys.exit(0)
raise SystemExit("no error")
