"""Gradients of all ranks: jax.grad() and jax.value_and_grad(), and the wrapper for optimizers of optax."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from horovod.common.basics import Average
from horovod.common.distributed_options import DistributedOptions, checked_groups, partition
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax.compression import Compression
from horovod.jax.ops import allreduce


def _reduced(gradients: Any, options: DistributedOptions) -> Any:
    """The tree with the gradients of all ranks; on a rank that is not in the set, as it is."""
    if not options.process_set.included():
        return gradients
    leaves, structure = jax.tree.flatten(gradients)
    parts = [range(len(leaves))] if options.groups is None else partition(leaves, options.groups)
    for number, part in enumerate(parts):
        results = allreduce(
            [leaves[i] for i in part],
            # Always the same name, so that the engine knows it from the step before.
            name=options.name if len(parts) == 1 else f"{options.name}.{number}",
            compression=options.compression,
            op=options.op,
            process_set=options.process_set,
            **options.factors(),
        )
        for i, result in zip(part, results, strict=True):
            leaves[i] = result
    return jax.tree.unflatten(structure, leaves)


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

    distributed = optax.GradientTransformationExtraArgs(inner.init, update)
    if backward_passes_per_step == 1:
        return distributed
    return optax.MultiSteps(
        distributed, backward_passes_per_step, use_grad_mean=average_aggregated_gradients
    ).gradient_transformation()
