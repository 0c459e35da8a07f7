"""Gradients of all ranks: jax.grad() and jax.value_and_grad(), and the wrapper for optimizers of optax."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from horovod import _core
from horovod.common.basics import Average
from horovod.common.distributed_options import DistributedOptions, checked_groups, partition
from horovod.common.process_sets import ProcessSet, global_process_set, is_member
from horovod.common.steps import end_step, kind_named
from horovod.jax import compiled
from horovod.jax.compression import Compression
from horovod.jax.operation import Operation
from horovod.jax.ops import compressed


def allreduce_leaves(
    leaves: Sequence[Any], name: str | None, options: DistributedOptions, ends_step: int = 0
) -> list[Any]:
    """The leaves of all ranks, in one operation; with it ends a step of this kind, if it is not 0."""
    factors = options.factors()
    how = Operation(
        _core.ALLREDUCE,
        name,
        options.op,
        0,
        factors["prescale_factor"],
        factors["postscale_factor"],
        options.process_set,
        ends_step=ends_step,
    )
    reduced: list[Any] = compressed(how, list(leaves), options.compression)
    return reduced


def _reduced(gradients: Any, options: DistributedOptions) -> Any:
    """The tree with the gradients of all ranks; on a rank that is not in the set, as it is."""
    every, structure = jax.tree.flatten(gradients)
    # Those of integers (allow_int) have no elements.
    places = [i for i, leaf in enumerate(every) if jnp.result_type(leaf) != jax.dtypes.float0]
    leaves = [every[i] for i in places]
    kind = _kind_of(str(options.name), tuple(jnp.shape(leaf) for leaf in leaves)) if leaves else 0
    if not is_member(options.process_set):
        # Nothing runs for it in a compiled program, so nothing tells of steps there.
        if kind and not compiled.is_tracing(leaves):
            end_step(kind)
        return gradients
    if not leaves:
        return gradients
    parts = [range(len(leaves))] if options.groups is None else partition(leaves, options.groups)
    for number, part in enumerate(parts):
        results = allreduce_leaves(
            [leaves[i] for i in part],
            # Always the same name, so that the engine knows it from the step before.
            options.name if len(parts) == 1 else f"{options.name}.{number}",
            options,
            kind if number == len(parts) - 1 else 0,
        )
        for i, result in zip(part, results, strict=True):
            every[places[i]] = result
    return jax.tree.unflatten(structure, every)


@functools.lru_cache(maxsize=256)
def _kind_of(name: str, shapes: tuple[tuple[int, ...], ...]) -> int:
    """The kind of step, by what is trained: parts of a model that are trained in turns are seldom alike.

    Not by the structure of the tree: what stands in there, such as functions, may be another in each run.
    """
    return kind_named(f"{name} {shapes}")


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    **options: Any,
) -> Callable[..., Any]:
    """jax.value_and_grad() with the gradients of all ranks; the value stays this rank's.

    name: by which ranks match the gradients; default: that of `fun`. options: jax.value_and_grad()'s others.
    gradient_predivide_factor: with op=Average, divide by this before the sum and by size / this after it.
    """
    plain = jax.value_and_grad(fun, argnums, has_aux, **options)
    reduction = DistributedOptions(
        name=name or f"gradient.{getattr(fun, '__name__', 'function')}",
        compression=compression,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        process_set=process_set,
    )

    @functools.wraps(plain)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        value, gradients = plain(*args, **kwargs)
        return value, _reduced(gradients, reduction)

    return wrapper


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **options: Any
) -> Callable[..., Any]:
    """jax.grad() with the gradients of all ranks; takes the arguments of value_and_grad()."""
    both = value_and_grad(fun, argnums, has_aux, **options)

    @functools.wraps(fun)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return wrapper


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: int | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """An optax transformation that first reduces the gradients over all ranks, in one operation.

    Its state is that of `optimizer`, so checkpoints fit either; with backward_passes_per_step > 1 it is that
    of optax.MultiSteps, which sums (with average_aggregated_gradients: averages) the gradients of that many
    passes on each rank before they are reduced and applied.

    name: of the operation, as seen in timelines. compression: what travels, for example hvd.Compression.fp16.
    gradient_predivide_factor: with op=Average, divide by this before the sum and by size / this after it.
    groups: reduce the leaves in that many operations instead.
    """
    import optax

    if groups is not None and not isinstance(groups, int):
        raise ValueError(f"groups must be a positive number here, got {groups!r}")
    options = DistributedOptions(
        name=name or "DistributedOptimizer",
        compression=compression,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=checked_groups(groups, 0, None),
        process_set=process_set,
    )
    inner = optax.with_extra_args_support(optimizer)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        return inner.update(_reduced(updates, options), state, params, **extra)

    if backward_passes_per_step == 1:
        return optax.GradientTransformationExtraArgs(inner.init, update)
    init = optax.MultiSteps(inner, backward_passes_per_step, use_grad_mean=average_aggregated_gradients).init

    # Not MultiSteps's own: of what is called within its lax.cond, no number comes out.
    def update_passes(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        passes = state.mini_step + 1
        due = passes == backward_passes_per_step

        def added(sum_or_mean: Any, gradient: Any) -> Any:
            if average_aggregated_gradients:
                gradient = (gradient - sum_or_mean) / passes
            return (sum_or_mean + gradient).astype(sum_or_mean.dtype)

        def step(sums: Any, number: Any) -> Any:
            compiled.order.set(number)
            gradients = jax.tree.map(lambda total, like: total.astype(jnp.result_type(like)), sums, updates)
            changes, inner_state = update(gradients, state.inner_opt_state, params, **extra)
            # Of the types that it had, as after MultiSteps.
            inner_state = jax.tree.map(
                lambda old, new: jnp.asarray(new, jnp.asarray(old).dtype), state.inner_opt_state, inner_state
            )
            return changes, inner_state, jax.tree.map(jnp.zeros_like, sums), compiled.order.get()

        def wait(sums: Any, number: Any) -> Any:
            changes, _ = jax.eval_shape(lambda: inner.update(updates, state.inner_opt_state, params, **extra))
            zeros = jax.tree.map(lambda change: jnp.zeros(change.shape, change.dtype), changes)
            return zeros, state.inner_opt_state, sums, number

        sums = jax.tree.map(added, state.acc_grads, updates)
        changes, inner_state, sums, number = _either(due, step, wait, sums, compiled.order.get())
        compiled.order.set(number)
        return changes, state._replace(
            mini_step=passes % backward_passes_per_step,
            gradient_step=state.gradient_step + due,
            inner_opt_state=inner_state,
            acc_grads=sums,
        )

    return optax.GradientTransformationExtraArgs(init, update_passes)


def _either(condition: Any, one: Callable[..., Any], other: Callable[..., Any], *operands: Any) -> Any:
    """lax.cond(), for which only one of them is called where the condition is known."""
    if isinstance(condition, jax.core.Tracer):
        return jax.lax.cond(condition, one, other, *operands)
    return (one if condition else other)(*operands)
