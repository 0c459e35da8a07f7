"""Rank 1 dies; the others must hear of it at once, within a program that runs in the call."""

from __future__ import annotations

import os
import signal
import sys
import time

import jax
import jax.numpy as jnp

import horovod.jax as hvd

hvd.init()
small = jax.jit(lambda x: hvd.allreduce(x, name="small"))
jax.block_until_ready(small(jnp.ones(3)))
hvd.barrier()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
start = time.monotonic()
try:
    jax.block_until_ready(small(jnp.ones(3)))
except (RuntimeError, ValueError) as error:  # JAX knows both for programs
    took = time.monotonic() - start
    assert "rank 1" in str(error).lower() and "Horovod allreduce" in str(error), error
    assert took < 1.0, took
    print(f"rank {hvd.rank()} heard of it after {took:.3f} s: {error}", flush=True)
    sys.exit(0)
raise SystemExit("no error")
