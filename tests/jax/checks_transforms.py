"""Collectives under JAX's transformations, and the order of those in one program. Two ranks or more."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from checks_ops import both_ways, data, same_bits
from util_expect import raises

import horovod.jax as hvd
import horovod.numpy as hvd_np


def mean_of(make: Any) -> Any:
    """What every rank can compute: the mean of all ranks' arrays."""
    return sum(make(rank) for rank in range(hvd.size())) / hvd.size()


def weights(rank: int, *shape: int) -> Any:
    """Another gradient on each rank."""
    return np.random.default_rng(7 + rank).normal(size=shape)


def gradients(call: Any, x: Any, outer: Any) -> list[Any]:
    """Those of sum(call(x) * outer), eagerly and compiled."""

    def loss(x: Any) -> Any:
        return (call(x) * outer).sum()

    return [jax.grad(loss)(x), jax.jit(jax.grad(loss))(x)]


def check_gradients() -> None:
    size, rank = hvd.size(), hvd.rank()
    x = data((size, 2), jnp.float64)

    def close(call: Any, expected: Any, outer: Any) -> None:
        for found in gradients(call, x, outer):
            np.testing.assert_allclose(found, expected, rtol=1e-12)

    mean = mean_of(lambda rank: weights(rank, size, 2))
    own = weights(rank, size, 2)
    close(hvd.allreduce, mean, own)
    close(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, name="named"), 2 * size * mean, own)
    for root in (0, size - 1):
        close(lambda x, root=root: hvd.broadcast(x, root), mean * (rank == root), own)
    wide = mean_of(lambda rank: weights(rank, size * size, 2))
    close(hvd.allgather, wide[rank * size : (rank + 1) * size], weights(rank, size * size, 2))
    close(hvd.alltoall, np.stack([weights(other, size, 2)[rank] for other in range(size)]), own)
    rows = np.concatenate([weights(other, 1, 2) for other in range(size)])
    close(hvd.reducescatter, rows, weights(rank, 1, 2))
    close(lambda x: hvd.reducescatter(x, op=hvd.Sum), size * rows, weights(rank, 1, 2))


def check_gradients_with_uneven_rows() -> None:
    size, rank = hvd.size(), hvd.rank()
    x = data((rank + 1, 2), jnp.float64)
    total = size * (size + 1) // 2
    mean = mean_of(lambda rank: weights(rank, total, 2))
    start = rank * (rank + 1) // 2
    found = jax.grad(lambda x: (hvd.allgather(x) * weights(rank, total, 2)).sum())(x)
    np.testing.assert_allclose(found, mean[start : start + rank + 1], rtol=1e-12)
    splits = [(rank + to) % 3 for to in range(size)]
    x = data((sum(splits) + 1, 2), jnp.float64)
    found = jax.grad(lambda x: (hvd.alltoall(x, splits=splits)[0] ** 2).sum())(x)
    np.testing.assert_allclose(found[:-1], 2 * x[:-1], rtol=1e-12)
    assert (found[-1] == 0).all()
    # Rows that don't divide evenly: known beforehand, so also within jit.
    x = data((2 * size + 1, 2), jnp.float64)
    for transformed in (jax.grad, lambda f: jax.jit(jax.grad(f))):
        found = transformed(lambda x: (hvd.reducescatter(x, op=hvd.Sum) ** 2).sum())(x)
        reduced = hvd_np.allreduce(np.asarray(x), op=hvd.Sum)
        np.testing.assert_allclose(found, 2 * size * reduced, rtol=1e-12)


def check_gradients_of_gradients() -> None:
    x = data((hvd.size(), 2), jnp.float64)
    m = hvd.allreduce(x)
    for wrap in (lambda f: f, jax.jit):
        second = wrap(jax.grad(lambda x: jax.grad(lambda x: (hvd.allreduce(x) ** 3).sum())(x).sum()))(x)
        np.testing.assert_allclose(second, 6 * m, rtol=1e-10)
        for call in (hvd.allgather, lambda x: hvd.broadcast(x, 0), hvd.alltoall, hvd.reducescatter):
            grad = jax.grad(lambda x, call=call: (call(x) ** 3).sum())
            assert np.isfinite(wrap(jax.grad(lambda x, grad=grad: (grad(x) ** 2).sum()))(x)).all()


def check_no_gradient_of_min() -> None:
    for wrap in (lambda f: f, jax.jit):
        with raises(NotImplementedError, "hvd.Min", "stop_gradient"):
            wrap(jax.grad(lambda x: hvd.allreduce(x, op=hvd.Min).sum()))(jnp.ones(3))
    with raises(TypeError, "jvp"):
        jax.jvp(hvd.allreduce, (jnp.ones(3),), (jnp.ones(3),))


def check_remat() -> None:
    x = data((5,), jnp.float64)

    def loss(x: Any) -> Any:
        return (hvd.allreduce(jnp.sin(x)) ** 2).sum()

    for wrap in (lambda f: f, jax.jit):
        plain, again = wrap(jax.grad(loss))(x), wrap(jax.grad(jax.checkpoint(loss)))(x)
        np.testing.assert_allclose(plain, again, rtol=1e-12)


def check_scan_and_cond() -> None:
    xs = data((4, 3), jnp.float32)

    def body(carry: Any, x: Any) -> Any:
        reduced = hvd.allreduce(x, op=hvd.Sum)
        more = hvd.allreduce(carry, op=hvd.Max)
        return more + reduced, reduced

    expected = [hvd_np.allreduce(np.asarray(x), op=hvd.Sum) for x in xs]
    _, found = jax.jit(lambda xs: jax.lax.scan(body, jnp.zeros(3), xs))(xs)
    same_bits(list(found), expected)
    both = jax.jit(lambda flag, x: jax.lax.cond(flag, hvd.allreduce, lambda x: x, x))
    same_bits(both(True, xs[0]), hvd_np.allreduce(np.asarray(xs[0])))
    same_bits(both(False, xs[0]), xs[0])


def check_vmap() -> None:
    xs = data((4, 3), jnp.float32)
    both_ways(jax.vmap(hvd.allreduce), hvd_np.allreduce(np.asarray(xs)), xs)
    both_ways(jax.vmap(lambda x: hvd.broadcast(x, 0), 1, 1), hvd_np.broadcast(np.asarray(xs), 0), xs)
    if jax.__version_info__ >= (0, 7):  # before, JAX makes a call for each of the batch
        with raises(Exception, "vmap"):
            jax.jit(jax.vmap(hvd.allgather))(xs)
    if hvd.size() & (hvd.size() - 1) == 0:  # which is not element by element
        expected = np.stack([hvd_np.allreduce(np.asarray(x), op=hvd.Adasum) for x in xs])
        both_ways(jax.vmap(lambda x: hvd.allreduce(x, op=hvd.Adasum)), expected, xs)


def check_all_of_them_together() -> None:
    """vmap, scan, remat and grad in a program that takes its argument's memory, against plain JAX."""

    def loss(reduce: Any, weights: Any, examples: Any) -> Any:
        def layer(carry: Any, x: Any) -> Any:
            out = jnp.tanh(carry + reduce(x * weights))
            return out, reduce(out.sum())

        def one(xs: Any) -> Any:
            last, sums = jax.lax.scan(jax.checkpoint(layer), jnp.ones(4), xs)
            return last.sum() + sums.sum()

        return jax.vmap(one)(examples).sum()

    examples = jnp.asarray(np.random.default_rng(3).normal(size=(3, 5, 4)))  # the same on all ranks
    # An average of what all have alike changes nothing, and on the way back neither.
    expected = jax.grad(lambda w: loss(lambda x: x, w, examples))(jnp.ones(4))
    step = jax.jit(lambda w, xs: jax.grad(lambda w: loss(hvd.allreduce, w, xs))(w), donate_argnums=0)
    for _ in range(2):
        np.testing.assert_allclose(step(jnp.ones(4), examples), expected, rtol=1e-10)


def check_no_tracer_is_kept_where_that_is_an_error() -> None:
    with jax.checking_leaks():
        step = jax.jit(lambda x: hvd.allreduce(hvd.allreduce(x, op=hvd.Sum), op=hvd.Max))
        assert step(jnp.ones(3))[0] == hvd.size()


def check_donation_works_in_place() -> None:
    step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum), donate_argnums=0)
    values = data((1000,), jnp.float32)
    expected = hvd_np.allreduce(np.asarray(values), op=hvd.Sum)
    given = jnp.array(values)
    place = given.unsafe_buffer_pointer()
    result = step(given)
    same_bits(result, expected)
    assert result.unsafe_buffer_pointer() == place and given.is_deleted()
    kept = jnp.array(values)  # and without it, the argument stays as it is
    same_bits(jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(kept), expected)
    same_bits(kept, np.asarray(values))


def check_opposite_orders_of_results() -> None:
    """XLA follows the order in which results are asked for; ranks then wait in different calls."""
    x = data((5,), jnp.float32)

    def program(x: Any) -> Any:
        first = hvd.allreduce(x, op=hvd.Sum, name="first")
        second = hvd.allreduce(x, op=hvd.Max, name="second")
        unnamed = hvd.allreduce(2 * x, op=hvd.Sum), hvd.allreduce(x, op=hvd.Sum)
        results = (first, second, *unnamed)
        return results if hvd.rank() == 0 else results[::-1]

    same = [hvd_np.allreduce(np.asarray(f * x), op=op) for f, op in ((1, 1), (1, 4), (2, 1), (1, 1))]
    found = jax.jit(program)(x)
    same_bits(found if hvd.rank() == 0 else found[::-1], same)

    if jax.__version_info__ < (0, 7):
        return  # the way back follows the order of the sum, not that of the program

    def loss(x: Any) -> Any:
        first, second = hvd.allreduce(x, name="first"), hvd.allreduce(x**2, name="second")
        return (first + second if hvd.rank() == 0 else second + first).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(loss))(x), 1 + 2 * x, rtol=1e-6)


def check_calls_after_an_accumulating_optimizer_wait_for_it() -> None:
    optimizer = hvd.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=2)
    x = data((5,), jnp.float32)

    def program(x: Any, state: Any) -> Any:
        before = hvd.broadcast(x, 0, name="before")
        updates, state = optimizer.update(x, state)
        after = hvd.broadcast(before, 0, name="after")
        return (updates, after, state) if hvd.rank() == 0 else (after, updates, state)

    # A number goes from the first call through the branch with the optimizer's to the last one.
    equations = jax.make_jaxpr(program)(x, optimizer.init(x)).jaxpr.eqns
    first, last = (each for each in equations if each.primitive.name.startswith("custom_vjp"))
    (branch,) = (each for each in equations if each.primitive.name == "cond")
    for before, after in ((first, branch), (branch, last)):
        assert any(out in after.invars and out.aval.dtype == jnp.int32 for out in before.outvars)
    state, step = optimizer.init(x), jax.jit(program)
    for _ in range(4):
        one, other, state = step(x, state)
    same_bits(one if hvd.rank() > 0 else other, hvd_np.broadcast(np.asarray(x), 0))


def check_tracing_more_often_on_one_rank() -> None:
    """Numbers are given when calls run, not when they are traced."""
    step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
    for length in range(3):
        if hvd.rank() == 0:
            step.lower(jnp.ones(10 + length))
            jax.clear_caches()
        assert step(jnp.ones(3))[0] == hvd.size()
    assert hvd.allreduce(jnp.ones(2), op=hvd.Sum)[0] == hvd.size()


def check_constants_within_programs() -> None:
    """They are reduced whenever the program runs, not while it is traced."""
    constant, ran = data((3,), jnp.float32), jax.jit(lambda x: hvd.allreduce(constant, op=hvd.Sum) + x)
    expected = hvd_np.allreduce(np.asarray(constant), op=hvd.Sum)
    if hvd.rank() == 0:
        ran.lower(jnp.zeros(3, jnp.float32))  # nobody else does so
    for _ in range(2):
        same_bits(ran(jnp.zeros(3, jnp.float32)), expected)
    # But not within grad alone, which has values.
    found = jax.grad(lambda x: (x * hvd.allreduce(constant, op=hvd.Sum)).sum())(constant)
    same_bits(found, expected)


def check_values_after_programs() -> None:
    """A call on values gets its number after those of programs that are under way."""
    large = jnp.ones((400, 400), jnp.float32)

    @jax.jit
    def long(x: Any) -> Any:
        for _ in range(3 if hvd.rank() == 0 else 12):
            x = x @ x / 400
        return hvd.allreduce(x[0, :3], op=hvd.Sum)

    for _ in range(3):
        pending = long(large)
        assert hvd.allreduce(jnp.full(3, 5.0), op=hvd.Sum)[0] == 5 * hvd.size()
        np.testing.assert_allclose(pending, hvd.size(), rtol=1e-3)


def check_300_leaves_are_one_group() -> None:
    """The timeline of the coordinator has one operation, whatever the number of leaves."""
    import json
    import os
    import tempfile

    path = os.path.join(tempfile.gettempdir(), f"horovod-leaves-{os.getpid()}.json")
    tree = {f"leaf{i}": jnp.full((i % 7 + 1,), float(i)) for i in range(300)}
    step = jax.jit(lambda tree: hvd.allreduce(tree, name="large tree"))
    jax.block_until_ready(step(tree))
    hvd.start_timeline(path)
    jax.block_until_ready(step(tree))
    hvd.barrier()
    hvd.stop_timeline()
    if hvd.rank() == 0:
        with open(path) as file:
            text = file.read()
        os.unlink(path)
        names = {
            event["args"]["name"]
            for event in json.loads(text)
            if event.get("name") == "process_name" and "large tree" in str(event.get("args", {}).get("name"))
        }
        assert names == {"grouped_allreduce.large tree"}, names
