"""The same parameters on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common.arrays import collectives, dtype_code
from horovod.common.handles import table
from horovod.common.objects import allgather_object, broadcast_object
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax.arrays import is_traced, to_jax

# Elements of other types travel as integers of their size.
_MOVED_AS = {1: np.uint8, 2: np.uint16, 4: np.int32, 8: np.int64}


def broadcast_parameters(
    params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's pytree: `params = hvd.broadcast_parameters(params)`. Not within jax.jit.

    Leaves may be arrays of any type, typed PRNG keys, numbers and whatever can be pickled. All ranks must
    have the same structure, with arrays of the same shapes and dtypes (ValueError on all of them otherwise).
    """
    leaves, structure = jax.tree.flatten(params)
    if is_traced(leaves):
        raise TypeError(
            "hvd.broadcast_parameters() needs values: call it outside of jit, or use hvd.broadcast()"
        )
    _check_alike(params, process_set)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray)]
    values = broadcast_arrays([leaves[i] for i in places], root_rank, "parameter", process_set)
    for i, value in zip(places, values, strict=True):
        leaves[i] = value
    others = [i for i in range(len(leaves)) if i not in set(places)]
    if others:
        objects = broadcast_object([leaves[i] for i in others], root_rank, "parameters", process_set)
        for i, value in zip(others, objects, strict=True):
            leaves[i] = value
    return jax.tree.unflatten(structure, leaves)


broadcast_optimizer_state = broadcast_parameters


def broadcast_arrays(
    arrays: Sequence[Any], root_rank: int, name: str, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The root's arrays of any type, all at once; those of the others tell what they are like."""
    handles = [
        collectives.broadcast(_as_numpy(array), root_rank, f"{name}.{i}", process_set)
        for i, array in enumerate(arrays)
    ]
    return [_like(array, table.synchronize(handle)) for array, handle in zip(arrays, handles, strict=True)]


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _check_alike(params: Any, process_set: ProcessSet) -> None:
    described = [
        f"{jax.tree_util.keystr(path)}: {leaf.dtype}{list(leaf.shape)}"
        if isinstance(leaf, jax.Array | np.ndarray)
        else f"{jax.tree_util.keystr(path)}: {type(leaf).__name__}"
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
    ]
    ranks = process_set.ranks or []
    first, *rest = allgather_object(described, "parameters", process_set)
    for rank, others in zip(ranks[1:], rest, strict=True):
        if others != first:
            different = [leaf for leaf in [*first, *others] if (leaf in first) != (leaf in others)]
            raise ValueError(
                f"hvd.broadcast_parameters(): rank {rank} has other parameters than rank {ranks[0]}: "
                f"{', '.join(different[:4]) or 'in another order'}"
            )


def _as_numpy(leaf: Any) -> Any:
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    try:
        dtype_code(array.dtype)
    except ValueError:
        return array.view(_MOVED_AS[array.dtype.itemsize])
    return array


def _like(leaf: Any, array: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return array.view(leaf.dtype)
    if not _is_key(leaf):
        return to_jax(array.view(leaf.dtype))
    data = to_jax(array.view(np.uint32))
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
