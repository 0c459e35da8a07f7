"""The collectives on JAX arrays, eagerly and compiled, against those of numpy, to the last bit.

For any number of ranks, with JAX_ENABLE_X64=1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from util_expect import raises

import horovod.jax as hvd
import horovod.numpy as hvd_np

hvd.init()

INTEGER = [jnp.uint8, jnp.int8, jnp.uint16, jnp.int16, jnp.int32, jnp.int64]
FLOATING = [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64, jnp.complex64, jnp.complex128]
SHAPES: list[tuple[int, ...]] = [(), (0,), (17,), (2, 3, 5), (9001,)]


def data(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    """This rank's own numbers."""
    random = np.random.default_rng(100 * seed + hvd.rank())
    values = random.normal(size=shape) * 10
    if np.dtype(dtype).kind == "c":
        values = values + 1j * random.normal(size=shape)
    return jnp.asarray(np.abs(values) if np.dtype(dtype).kind in "ub" else values).astype(dtype)


def same_bits(actual: Any, expected: Any, *what: object) -> None:
    """Trees of arrays: JAX's on one side, numpy's on the other."""
    ours, theirs = jax.tree.leaves(actual), jax.tree.leaves(expected)
    assert len(ours) == len(theirs), what
    for our, their in zip(ours, theirs, strict=True):
        assert isinstance(our, jax.Array), what
        assert our.dtype == their.dtype and our.shape == their.shape, (what, our, their)
        assert np.asarray(our).tobytes() == np.asarray(their).tobytes(), (what, our, their)


def both_ways(call: Callable[..., Any], expected: Any, *leaves: Any) -> None:
    """`call` gives what is expected, eagerly and within jit."""
    same_bits(call(*leaves), expected, "eager")
    same_bits(jax.jit(call)(*leaves), expected, "jit")


def every_dtype(call: Callable[[Any], Any], reference: Callable[[Any], Any], dtypes: Any, shape: Any) -> None:
    """All of them in one program, as compiling takes long."""
    leaves = [data(shape, dtype) for dtype in dtypes]
    expected = [reference(np.asarray(leaf)) for leaf in leaves]
    both_ways(lambda *given: [call(leaf) for leaf in given], expected, *leaves)


def check_namespace() -> None:
    for name in hvd.__all__:
        assert hasattr(hvd, name), name
    # JAX's arrays are not written to.
    missing = {name for name in hvd_np.__all__ if not name.endswith("_")} - set(hvd.__all__)
    assert missing == {"empty"}, missing


def check_allreduce() -> None:
    for shape in SHAPES:
        for op in (hvd.Sum, hvd.Average):
            dtypes = [*INTEGER, *FLOATING, jnp.bool_] if shape == (17,) else [jnp.float32, jnp.bfloat16]
            every_dtype(
                lambda x, op=op: hvd.allreduce(x, op=op),
                lambda x, op=op: hvd_np.allreduce(x, op=op),
                dtypes,
                shape,
            )
    for op in (hvd.Min, hvd.Max, hvd.Product):
        every_dtype(
            lambda x, op=op: hvd.allreduce(x, op=op),
            lambda x, op=op: hvd_np.allreduce(x, op=op),
            [jnp.int32, jnp.bfloat16, jnp.float64],
            (33,),
        )


def check_factors_and_names() -> None:
    x = data((50,), jnp.float32, 3)
    options = {"op": hvd.Sum, "prescale_factor": 0.3, "postscale_factor": 1.7, "name": "factors"}
    both_ways(lambda x: hvd.allreduce(x, **options), hvd_np.allreduce(np.asarray(x), **options), x)
    if hvd.size() & (hvd.size() - 1) == 0:
        both_ways(
            lambda x: hvd.allreduce(x, op=hvd.Adasum), hvd_np.allreduce(np.asarray(x), op=hvd.Adasum), x
        )
    else:
        for call in (hvd.allreduce, jax.jit(lambda x: hvd.allreduce(x, op=hvd.Adasum))):
            with raises(NotImplementedError, str(hvd.size())):
                call(x) if call is not hvd.allreduce else call(x, op=hvd.Adasum)


def check_trees() -> None:
    tree = {"a": data((3,), jnp.float32), "b": (data((), jnp.int32), [data((2, 2), jnp.bfloat16)]), "c": None}
    expected = hvd_np.grouped_allreduce([np.asarray(leaf) for leaf in jax.tree.leaves(tree)])
    result = hvd.allreduce(tree)
    assert jax.tree.structure(result) == jax.tree.structure(tree)
    same_bits(result, expected)
    both_ways(hvd.grouped_allreduce, expected, tree)
    numbers = hvd.allreduce([1.5, np.arange(3), 2])
    assert [leaf.shape for leaf in numbers] == [(), (3,), ()]
    assert hvd.allreduce({}) == {} and hvd.allgather([]) == []
    gathered = hvd_np.grouped_allgather([np.asarray(leaf)[None] for leaf in jax.tree.leaves(tree)])
    both_ways(lambda tree: hvd.allgather(jax.tree.map(lambda x: x[None], tree)), gathered, tree)
    both_ways(lambda tree: hvd.broadcast(tree, 0), hvd_np_broadcast(jax.tree.leaves(tree)), tree)


def hvd_np_broadcast(leaves: list[Any]) -> list[Any]:
    return [hvd_np.broadcast(np.asarray(leaf), 0) for leaf in leaves]


def check_allgather_broadcast() -> None:
    dtypes = [*INTEGER, *FLOATING, jnp.bool_]
    every_dtype(hvd.allgather, hvd_np.allgather, dtypes, (3, 2))
    root = hvd.size() - 1
    every_dtype(lambda x: hvd.broadcast(x, root), lambda x: hvd_np.broadcast(x, root), dtypes, (3, 2))
    rows = jnp.full((hvd.rank() + 1, 2), hvd.rank())
    same_bits(hvd.allgather(rows), hvd_np.allgather(np.asarray(rows)))


def check_alltoall_reducescatter() -> None:
    size = hvd.size()
    every_dtype(hvd.alltoall, hvd_np.alltoall, [jnp.float32, jnp.int8], (2 * size, 3))
    splits = [(hvd.rank() + to) % 3 for to in range(size)]
    x = data((sum(splits) + 1, 2), jnp.float32)
    same_bits(hvd.alltoall(x, splits=splits), hvd_np.alltoall(np.asarray(x), splits))
    same_bits(hvd.alltoall(x, splits=jnp.array(splits)), hvd_np.alltoall(np.asarray(x), splits))
    tree = [data((2 * size, 3), jnp.float32), data((size,), jnp.int32, 1)]  # cut up in two ways
    for name in (None, "several"):
        call = lambda tree, name=name: hvd.alltoall(tree, name=name)  # noqa: E731
        both_ways(call, [hvd_np.alltoall(np.asarray(leaf)) for leaf in tree], tree)
    for rows in (size, 2 * size + 1):
        for op in (hvd.Sum, hvd.Average):
            every_dtype(
                lambda x, op=op: hvd.reducescatter(x, op=op),
                lambda x, op=op: hvd_np.reducescatter(x, op=op),
                [jnp.float32, jnp.bfloat16, jnp.int32],
                (rows, 3),
            )


def check_compression() -> None:
    x = data((20,), jnp.float32)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        short = np.asarray(compression.compress(x)[0])
        expected = hvd_np.allreduce(short).astype(np.float32)
        both_ways(lambda x, compression=compression: hvd.allreduce(x, compression=compression), expected, x)
    assert hvd.allreduce(jnp.array([7]), compression=hvd.Compression.fp16).dtype == jnp.int64


def check_handles() -> None:
    tree = {"x": data((5,), jnp.float32), "y": data((2,), jnp.int32)}
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    handle = hvd.allreduce_async(tree, op=hvd.Sum, name="handle")
    assert type(handle) is int
    same_bits(hvd.synchronize(handle), hvd_np.grouped_allreduce(leaves, op=hvd.Sum))
    assert hvd.synchronize(handle) is None
    with raises(ValueError, str(handle)):
        hvd.poll(handle)
    handle = hvd.broadcast_async(tree, 0)
    while not hvd.poll(handle):
        pass
    same_bits(hvd.synchronize(handle), hvd_np_broadcast(leaves))
    same_bits(hvd.synchronize(hvd.allgather_async(tree["x"])), hvd_np.allgather(leaves[0]))
    rows = jnp.arange(hvd.size())
    output, received = hvd.synchronize(hvd.alltoall_async(rows, splits=[1] * hvd.size()))
    assert output.tolist() == [hvd.rank()] * hvd.size() and received.tolist() == [1] * hvd.size()
    same_bits(hvd.synchronize(hvd.reducescatter_async(rows)), hvd_np.reducescatter(np.asarray(rows)))
    for word in ("allreduce", "allgather", "alltoall", "reducescatter"):
        with raises(TypeError, f"hvd.{word}_async()", f"hvd.{word}()"):
            jax.jit(getattr(hvd, f"{word}_async"))(rows)


def check_wrong_dtypes() -> None:
    for dtype in (jnp.uint32, jnp.float8_e4m3fn, jnp.int4):
        for call in (hvd.allreduce, jax.jit(hvd.allreduce)):
            with raises(ValueError, jnp.dtype(dtype).name, "cast"):
                call(jnp.ones(3, dtype))
    with raises(ValueError, "key_data"):
        hvd.broadcast(jax.random.key(0), 0)


def check_process_sets() -> None:
    if hvd.size() == 1:
        return
    high = hvd.add_process_set(range(1, hvd.size()))
    x = data((4,), jnp.float32)
    if hvd.rank() == 0:
        with raises(ValueError, "process set"):
            hvd.allreduce(x, process_set=high)
        with raises((RuntimeError, ValueError), "process set", "rank 0 is not in"):
            jax.block_until_ready(jax.jit(lambda x: hvd.allreduce(x, process_set=high))(x))
    else:
        both_ways(
            lambda x: hvd.allreduce(x, process_set=high), hvd_np.allreduce(np.asarray(x), process_set=high), x
        )
        both_ways(
            lambda x: hvd.allgather(x, process_set=high), hvd_np.allgather(np.asarray(x), process_set=high), x
        )
    hvd.barrier()
    assert hvd.remove_process_set(high)


def check_join() -> None:
    step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
    for batch in range(hvd.rank() + 1):
        assert step(jnp.ones(1))[0] == hvd.size() - batch
    assert hvd.join() == hvd.size() - 1
    assert step(jnp.ones(1))[0] == hvd.size() == hvd.allreduce(jnp.ones(1), op=hvd.Sum)[0]
