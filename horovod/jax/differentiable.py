"""The collectives with their gradients, on leaves that may be traced.

Gradients are collectives too, so all ranks must compute them; they are themselves differentiable.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from horovod import _core
from horovod.common.basics import rank
from horovod.common.steps import end_step
from horovod.jax import arrays, compiled
from horovod.jax.operation import Operation

_NOT_DIFFERENTIABLE = {_core.MIN: "Min", _core.MAX: "Max", _core.PRODUCT: "Product"}


def run(operation: Operation, leaves: Sequence[Any]) -> list[Any]:
    """The results; with splits, the received ones are the last."""
    return _run(operation.with_numbers(), leaves)[1]


def _run(operation: Operation, leaves: Sequence[Any]) -> tuple[Any, list[Any]]:
    if not compiled.is_tracing(leaves):
        return _collective(operation, np.int32(0), leaves)
    number, results = _differentiable(operation, compiled.order.get(), tuple(leaves))
    compiled.order.set(number)
    return number, list(results)


def _collective(operation: Operation, number: Any, leaves: Sequence[Any]) -> tuple[Any, list[Any]]:
    if compiled.is_tracing([number, *leaves]):
        if operation.kind == _core.ALLTOALL and len(leaves) > 1:
            return _one_by_one(operation, number, leaves)
        return compiled.call(operation, number, leaves)
    if operation.name is None:  # its number must come after those of programs that still run
        compiled.wait_for_programs()
    results = arrays.finish(operation, arrays.start(operation, leaves))
    if operation.ends_step:
        end_step(operation.ends_step)
    return number, results if operation.splits is not None else results[: len(leaves)]


def _one_by_one(operation: Operation, number: Any, leaves: Sequence[Any]) -> tuple[Any, list[Any]]:
    """As on values: in a group of the engine all would have to be cut up alike."""
    results = []
    for i, leaf in enumerate(leaves):
        name = None if operation.name is None else f"{operation.name}.{i}"
        number, [result] = compiled.call(operation._replace(name=name), number, [leaf])
        results.append(result)
    return number, results


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(
    operation: Operation, number: Any, leaves: tuple[Any, ...]
) -> tuple[Any, tuple[Any, ...]]:
    after, results = _collective(operation, number, leaves)
    return after, tuple(results)


def _forward(operation: Operation, number: Any, leaves: tuple[Any, ...]) -> tuple[Any, Any]:
    if operation.kind == _core.ALLREDUCE and operation.op in _NOT_DIFFERENTIABLE:
        raise NotImplementedError(
            f"{operation.word} with op=hvd.{_NOT_DIFFERENTIABLE[operation.op]} has no gradient: put "
            "jax.lax.stop_gradient() around its argument"
        )
    # This is part of the trace around the one that is differentiated.
    number = compiled.after_both(number, compiled.order.get())
    after, results = _differentiable(operation, number, leaves)
    compiled.order.set(after)
    received = results[-1] if operation.splits is not None else None
    return (after, results), (received, _Rows([leaf.shape[:1] for leaf in leaves]))


@jax.tree_util.register_static
class _Rows(list[tuple[int, ...]]):
    """How many rows each leaf has, beside the values that are kept for the way back."""

    def __hash__(self) -> int:  # type: ignore[override]  # it does not change
        return hash(tuple(self))


def _backward(operation: Operation, kept: Any, cotangents: Any) -> tuple[None, tuple[Any, ...]]:
    received, rows = kept
    # Whether a leaf has a gradient is decided by its dtype, which is the same on all ranks.
    _, all_outer = cotangents
    outer = all_outer[: len(rows)]
    places = [i for i, each in enumerate(outer) if each.dtype != jax.dtypes.float0]
    gradients: list[Any] = [None] * len(rows)
    if places:
        results = _GRADIENTS[operation.kind](
            operation, [outer[i] for i in places], [rows[i][0] if rows[i] else 1 for i in places], received
        )
        for i, result in zip(places, results, strict=True):
            gradients[i] = result
    return None, tuple(gradients)


_differentiable.defvjp(_forward, _backward)


def _of_allreduce(operation: Operation, outer: list[Any], rows: list[int], received: Any) -> list[Any]:
    """The same reduction."""
    return run(operation.gradient(), outer)


def _of_broadcast(operation: Operation, outer: list[Any], rows: list[int], received: Any) -> list[Any]:
    """Their average on the root, zero elsewhere."""
    back = operation.gradient(kind=_core.ALLREDUCE, op=_core.AVERAGE)
    number, reduced = _run(back, outer)
    # Not just zeros: a result that nobody uses is not computed, and the other ranks would wait for it. The
    # compiler does not know that the number is 0.
    chosen = number >= (0 if rank() == operation.root_rank else 1)
    return [jnp.where(chosen, gradient, jnp.zeros_like(gradient)) for gradient in reduced]


def _of_allgather(operation: Operation, outer: list[Any], rows: list[int], received: Any) -> list[Any]:
    """This rank's rows of their average."""
    own, size = operation.process_set.rank() or 0, operation.process_set.size() or 1
    if arrays.is_traced(outer):
        totals = [gradient.shape[0] for gradient in outer]
        starts = [own * (total // size) + min(own, total % size) for total in totals]
    else:  # the other ranks' rows are known only to them
        counts = operation._replace(name=None if operation.name is None else f"{operation.name}.rows")
        [everyones] = run(counts, [jnp.array([rows], jnp.int32)])
        starts = np.asarray(everyones)[:own].sum(axis=0).tolist()
    reduced = run(operation.gradient(kind=_core.ALLREDUCE, op=_core.AVERAGE, rows=None), outer)
    return [
        jax.lax.dynamic_slice_in_dim(gradient, start, count)
        for gradient, start, count in zip(reduced, starts, rows, strict=True)
    ]


def _of_reducescatter(operation: Operation, outer: list[Any], rows: list[int], received: Any) -> list[Any]:
    """All ranks' rows, times the number of ranks for Sum, times the factors."""
    factor = operation.prescale * operation.postscale
    if operation.op == _core.SUM:
        factor *= operation.process_set.size() or 1
    back = operation.gradient(
        kind=_core.ALLGATHER, op=_core.SUM, prescale=1.0, postscale=1.0, rows=tuple(rows)
    )
    return run(back, [gradient if factor == 1.0 else gradient * factor for gradient in outer])


def _of_alltoall(operation: Operation, outer: list[Any], rows: list[int], received: Any) -> list[Any]:
    """The rows go back where they came from."""
    splits = None if received is None else tuple(np.asarray(received).tolist())
    returned = run(operation.gradient(splits=splits), outer)[: len(outer)]
    return [
        jnp.pad(gradient, [(0, count - gradient.shape[0])] + [(0, 0)] * (gradient.ndim - 1))
        for gradient, count in zip(returned, rows, strict=True)
    ]


_GRADIENTS = {
    _core.ALLREDUCE: _of_allreduce,
    _core.ALLGATHER: _of_allgather,
    _core.BROADCAST: _of_broadcast,
    _core.ALLTOALL: _of_alltoall,
    _core.REDUCESCATTER: _of_reducescatter,
}
