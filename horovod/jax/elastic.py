"""Elastic training with JAX: `@hvd.elastic.run` around a training function, and its state."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp

from horovod.common import elastic as _elastic
from horovod.common.basics import rank
from horovod.common.elastic import State, source_rank
from horovod.common.objects import broadcast_object
from horovod.errors import HorovodInternalError
from horovod.jax.functions import broadcast_arrays

__all__ = ["JaxState", "ObjectState", "State", "run"]

P = ParamSpec("P")
R = TypeVar("R")

# As csrc/adapters/jax writes them.
_OURS = re.compile(r"Horovod (allreduce|allgather|broadcast|alltoall|reducescatter|barrier|join)\b.*: ")


class ObjectState(_elastic.ObjectState):
    """A state of Python objects, one attribute for each keyword: they are copied and pickled."""

    def _copied_attributes(self) -> dict[str, Any]:
        # Copies of what a program that fails is still to give would be saved, and fail from then on.
        jax.block_until_ready([getattr(self, name) for name in self._saved_state])
        return super()._copied_attributes()


class JaxState(ObjectState):
    """A state of pytrees, one attribute for each keyword: parameters, optimizer state, keys, numbers::

        state = hvd.elastic.JaxState(params=params, optimizer=optimizer.init(params), step=0)

    What is saved are copies, so that programs may take the attributes as donated arguments. JAX's arrays are
    sent as they are, and only the rest is pickled.
    """

    def __init__(self, **trees: Any) -> None:
        super().__init__(broadcast_object, rank, **trees)

    def _sync_attributes(self) -> None:
        own = {name: getattr(self, name) for name in self._saved_state}
        received = _from_source(own) if own else {}
        if received.keys() != own.keys():
            raise ValueError(
                f"the state of rank {source_rank()} has the attributes {sorted(received)}, that of rank "
                f"{rank()} has {sorted(own)}: start all ranks with the same program"
            )
        if rank() != source_rank():
            self._set_attributes(received)


def _from_source(own: dict[str, Any]) -> dict[str, Any]:
    """The trees of rank `source_rank()`. Until they are here, those of others may look different."""
    leaves, structure = jax.tree.flatten(own)
    source = source_rank()
    described = [
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if isinstance(leaf, jax.Array) else leaf
        for leaf in leaves
    ]
    # The whole tree, as not every structure can be pickled without leaves.
    theirs = broadcast_object(jax.tree.unflatten(structure, described), source, "horovod.elastic.trees")
    received, structure = jax.tree.flatten(theirs)
    places = [i for i, leaf in enumerate(received) if isinstance(leaf, jax.ShapeDtypeStruct)]
    arrays = [
        leaves[i] if rank() == source else jnp.empty(received[i].shape, received[i].dtype) for i in places
    ]
    for i, array in zip(places, broadcast_arrays(arrays, source, "horovod.elastic.array"), strict=True):
        received[i] = array
    trees: dict[str, Any] = jax.tree.unflatten(structure, received)
    return trees


def run(func: Callable[P, R]) -> Callable[P, R]:
    """Makes `func(state, ...)` go on when ranks come, go or fail; see docs/elastic.md."""
    return _elastic.run(func, _translated)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Failures of collectives within compiled programs, for which JAX has errors of its own."""
    try:
        yield
    except HorovodInternalError:
        raise
    except (RuntimeError, ValueError) as error:
        if not _OURS.search(str(error)):
            raise
        raise HorovodInternalError(str(error)) from error
