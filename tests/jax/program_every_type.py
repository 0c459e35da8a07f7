"""Collectives of all types, compiled and not, against horovod.numpy's; mistakes that all ranks hear of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import horovod.jax as hvd
import horovod.numpy as hvd_np

hvd.init()
SIZE, RANK = hvd.size(), hvd.rank()
INTEGER = [jnp.uint8, jnp.int8, jnp.uint16, jnp.int16, jnp.int32, jnp.int64]
FLOATING = [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64]
COMPLEX = [jnp.complex64, jnp.complex128]


def data(dtype: Any) -> Any:
    """This rank's own numbers."""
    random = np.random.default_rng(RANK)
    values = random.normal(size=(2 * SIZE, 3)) * 10
    if np.dtype(dtype).kind == "c":
        values = values + 1j * random.normal(size=values.shape)
    return jnp.asarray(np.abs(values) if np.dtype(dtype).kind in "ub" else values).astype(dtype)


def compare(call: Callable[[Any], Any], reference: Callable[[Any], Any], dtypes: list[Any]) -> None:
    def several(leaves: list[Any]) -> list[Any]:
        return [call(leaf) for leaf in leaves]

    leaves = [data(dtype) for dtype in dtypes]
    expected = [reference(np.asarray(leaf)) for leaf in leaves]
    for found in (several(leaves), jax.jit(several)(leaves)):
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            assert np.asarray(ours).tobytes() == theirs.tobytes(), (ours, theirs)


for op in (hvd.Min, hvd.Max, hvd.Product):
    compare(
        lambda x, op=op: hvd.allreduce(x, op=op),
        lambda x, op=op: hvd_np.allreduce(x, op=op),
        INTEGER + FLOATING,
    )
for op in (hvd.Sum, hvd.Average):
    compare(
        lambda x, op=op: hvd.reducescatter(x, op=op),
        lambda x, op=op: hvd_np.reducescatter(x, op=op),
        INTEGER + FLOATING + COMPLEX,
    )
compare(hvd.alltoall, hvd_np.alltoall, [*INTEGER, *FLOATING, *COMPLEX, jnp.bool_])


def fails(text: str, call: Callable[[Any], Any], x: Any) -> None:
    """All ranks hear of it, and the next operation is as ever."""
    try:
        jax.block_until_ready(jax.jit(call)(x))
    except (RuntimeError, ValueError) as error:  # JAX knows both for programs
        assert text in str(error), error
    else:
        raise AssertionError(f"no error: {text}")
    assert jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(jnp.ones(2))[0] == SIZE


first = RANK == 0
fails("different numbers of rows", hvd.alltoall, jnp.ones(SIZE * (RANK + 1)))
fails("Mismatched shapes", hvd.reducescatter, jnp.ones(SIZE * (RANK + 1)))
own_op = hvd.Max if first else hvd.Sum
fails("Mismatched reduce operations", lambda x: hvd.allreduce(x, op=own_op), jnp.ones(3))
fails("Mismatched data types", hvd.allreduce, jnp.ones(3, jnp.int32 if first else jnp.float32))
print(f"rank {RANK}: all as in numpy", flush=True)
