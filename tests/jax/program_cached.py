"""Programs that JAX may find in its cache on disk. Prints what it found there, and whether it works."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import horovod.jax as hvd

events: list[str] = []


def seen(event: str, **_: Any) -> None:
    events.append(event)


jax.monitoring.register_event_listener(seen)
hvd.init()
size = hvd.size()
assert jax.jit(lambda x: hvd.allreduce(x * 2, op=hvd.Sum))(jnp.ones(5))[0] == 2 * size
assert jax.jit(hvd.allgather)(jnp.ones(5)).shape == (5 * size,)
found = "/jax/compilation_cache/cache_misses" not in events and "/jax/compilation_cache/cache_hits" in events
print(f"rank {hvd.rank()} of {size} found {'all' if found else 'not all'}", flush=True)
