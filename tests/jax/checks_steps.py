"""What counts as a step of the training. Another thing that is trained counts from its second step on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from util_expect import cases, skip

import horovod.jax as hvd

hvd.init()

TIMES = 4
MODES = "at-once", "compiled"


def counted(run: Callable[[], Any]) -> int:
    """How many steps TIMES calls have."""
    for _ in range(2):
        jax.block_until_ready(run())
    before = hvd.metrics()["steps_total"]
    for _ in range(TIMES):
        jax.block_until_ready(run())
    return int(hvd.metrics()["steps_total"] - before)


def made(function: Callable[..., Any], mode: str) -> Any:
    return jax.jit(function) if mode == "compiled" else function


def params(width: int = 3) -> Any:
    return {"w": jnp.ones((4, width)), "b": jnp.zeros(width)}


def loss(params: Any, x: Any) -> Any:
    return ((x @ params["w"] + params["b"]) ** 2).mean()


def other_loss(params: Any, x: Any) -> Any:
    return loss(params, x) * 2.0


@cases(*MODES)
def check_grad(mode: str) -> None:
    for function in (hvd.grad(loss), hvd.value_and_grad(loss), hvd.grad(loss, name="mine", argnums=(0, 1))):
        step = made(function, mode)
        assert counted(lambda step=step: step(params(), jnp.ones((2, 4)))) == TIMES


@cases(*MODES)
def check_optimizer(mode: str) -> None:
    for options in ({}, {"groups": 2}, {"compression": hvd.Compression.fp16}):
        optimizer = hvd.DistributedOptimizer(optax.adam(0.1), **options)
        weights = params()
        state = optimizer.init(weights)

        def step(weights: Any, state: Any, optimizer: Any = optimizer) -> Any:
            updates, state = optimizer.update(jax.grad(loss)(weights, jnp.ones((2, 4))), state, weights)
            return optax.apply_updates(weights, updates), state

        run = made(step, mode)
        assert counted(lambda run=run, now=(weights, state): run(*now)) == TIMES


@cases(*MODES)
def check_passes(mode: str) -> None:
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1), backward_passes_per_step=2)
    weights = params()
    state = optimizer.init(weights)
    update = made(optimizer.update, mode)

    def run() -> Any:
        nonlocal state
        updates, state = update(jax.grad(loss)(weights, jnp.ones((2, 4))), state, weights)
        return updates

    assert counted(run) == TIMES / 2


@cases(*MODES)
def check_what_takes_turns_is_one_step(mode: str) -> None:
    """A generator and a discriminator; what grad() has reduced and an optimizer reduces again."""

    def two(one: Any, other: Any) -> Any:
        x = jnp.ones((2, 4))
        return hvd.grad(loss)(one, x), hvd.grad(other_loss)(other, x)

    run = made(two, mode)
    assert counted(lambda: run(params(), params())) == TIMES
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1))

    def optimized(one: Any, other: Any) -> Any:
        x = jnp.ones((2, 4))
        gradients = jax.grad(loss)(one, x), jax.grad(loss)(other, x)
        return [optimizer.update(each, optimizer.init(each))[0] for each in gradients]

    run_both = made(optimized, mode)
    assert counted(lambda: run_both(params(), params(5))) == TIMES

    def twice(weights: Any) -> Any:
        gradients = hvd.grad(loss)(weights, jnp.ones((2, 4)))
        return optimizer.update(gradients, optimizer.init(weights))[0]

    run_twice = made(twice, mode)
    assert counted(lambda: run_twice(params())) == TIMES


def check_loop_in_a_program() -> None:
    def train(weights: Any) -> Any:
        def step(weights: Any, x: Any) -> Any:
            gradients = hvd.grad(loss)(weights, x)
            return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), 0

        return jax.lax.scan(step, weights, jnp.ones((3, 2, 4)))

    run = jax.jit(train)
    assert counted(lambda: run(params())) == 3 * TIMES


def check_traced_again() -> None:
    step, rows = jax.jit(hvd.grad(loss)), iter(range(1, 100))
    assert counted(lambda: step(params(), jnp.ones((next(rows), 4)))) == TIMES


@cases(*MODES)
def check_only_reductions_of_gradients(mode: str) -> None:
    """Other collectives end no step, nor do the gradients of a reduction."""
    step = made(lambda x: hvd.allreduce(x, name="plain"), mode)
    assert counted(lambda: step(jnp.ones(3))) == 0

    def through(weights: Any) -> Any:
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(hvd.grad(loss)(weights, jnp.ones((2, 4)))))

    second = made(jax.grad(through), mode)
    assert counted(lambda: second(params())) == TIMES


def check_ranks_that_are_not_in_the_set() -> None:
    """They train on their own. In compiled programs nothing tells of their steps."""
    if hvd.size() == 1:
        skip("there are none")
    process_set = hvd.add_process_set([0])
    for mode in MODES:
        step = made(hvd.grad(loss, process_set=process_set), mode)
        expected = TIMES if mode == "at-once" or hvd.rank() == 0 else 0
        assert counted(lambda step=step: step(params(), jnp.ones((2, 4)))) == expected
    hvd.remove_process_set(process_set)
