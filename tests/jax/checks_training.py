"""Two ranks on half batches are one process on whole batches. Two ranks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from util_expect import raises

import horovod.jax as hvd
import horovod.numpy as hvd_np

hvd.init()

STEPS, HALF = 4, 8
_random = np.random.RandomState(0)
X = _random.randn(STEPS, 2, HALF, 5).astype("float32")
Y = X.sum(axis=-1, keepdims=True) * 0.5


def start() -> Any:
    keys = jax.random.split(jax.random.key(3))
    return {
        "hidden": {"w": jax.random.normal(keys[0], (5, 4)), "b": jnp.zeros(4)},
        "out": jax.random.normal(keys[1], (4, 1)),
    }


def loss(params: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    return ((hidden @ params["out"] - y) ** 2).mean()


def train(optimizer: Any, batches: Any, grad: Any = jax.grad, jit: bool = True) -> Any:
    params = start()
    state = optimizer.init(params)

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        updates, state = optimizer.update(grad(loss)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    if jit:
        step = jax.jit(step, donate_argnums=(0, 1))
    for x, y in batches:
        params, state = step(params, state, x, y)
    return params


def whole() -> Any:
    return [(x.reshape(-1, 5), y.reshape(-1, 1)) for x, y in zip(X, Y, strict=True)]


def halves() -> Any:
    return [(x[hvd.rank()], y[hvd.rank()]) for x, y in zip(X, Y, strict=True)]


def assert_same(params: Any, other: Any, tolerance: float = 2e-5) -> None:
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
        for everyones in hvd_np.allgather_object(np.asarray(ours)):
            np.testing.assert_array_equal(np.asarray(ours), everyones)


def check_sgd_and_adam() -> None:
    for make in (lambda: optax.sgd(0.1, momentum=0.9), lambda: optax.adam(0.01)):
        alone = train(make(), whole())
        for jit in (True, False):
            assert_same(train(hvd.DistributedOptimizer(make()), halves(), jit=jit), alone)
    try:
        assert_same(train(optax.sgd(0.1), halves()), train(optax.sgd(0.1), whole()))
    except AssertionError:
        return
    raise AssertionError("the test of equality can't fail")


def check_options() -> None:
    alone = train(optax.sgd(0.1), whole())
    for options in (
        {"gradient_predivide_factor": 2.0},
        {"groups": 2},
        {"groups": 100, "name": "mine", "compression": hvd.Compression.none},
    ):
        assert_same(train(hvd.DistributedOptimizer(optax.sgd(0.1), **options), halves()), alone)
    assert_same(train(hvd.DistributedOptimizer(optax.sgd(0.05), op=hvd.Sum), halves()), alone)
    short = hvd.DistributedOptimizer(optax.sgd(0.1), compression=hvd.Compression.fp16)
    assert_same(train(short, halves()), alone, tolerance=5e-3)
    for options in ({"groups": 0}, {"op": hvd.Sum, "gradient_predivide_factor": 2.0}):
        with raises(ValueError):
            hvd.DistributedOptimizer(optax.sgd(0.1), **options)
    with raises(ValueError, "backward_passes_per_step"):
        hvd.DistributedOptimizer(optax.sgd(0.1), backward_passes_per_step=0)


def check_backward_passes() -> None:
    quarters = [(x[part::2], y[part::2]) for x, y in halves() for part in (0, 1)]
    alone = train(optax.sgd(0.1), whole())
    mean = hvd.DistributedOptimizer(
        optax.sgd(0.1), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    assert_same(train(mean, quarters), alone)
    assert_same(train(hvd.DistributedOptimizer(optax.sgd(0.05), backward_passes_per_step=2), quarters), alone)
    around = optax.MultiSteps(hvd.DistributedOptimizer(optax.sgd(0.1)), 2)
    assert_same(train(around, quarters), alone)
    for jit in (True, False):  # once in two passes
        before = hvd.metrics()["operations_total"]["allreduce"]
        assert_same(train(mean, quarters, jit=jit), alone)
        assert hvd.metrics()["operations_total"]["allreduce"] - before == STEPS


def check_clipping_comes_after() -> None:
    make = lambda: optax.chain(optax.clip_by_global_norm(0.05), optax.sgd(0.1))  # noqa: E731
    assert_same(train(hvd.DistributedOptimizer(make()), halves()), train(make(), whole()))


def check_state_is_that_of_the_optimizer() -> None:
    plain, distributed = optax.adam(0.1), hvd.DistributedOptimizer(optax.adam(0.1))
    assert jax.tree.structure(plain.init(start())) == jax.tree.structure(distributed.init(start()))


def check_grad() -> None:
    alone = train(optax.sgd(0.1), whole())
    assert_same(train(optax.sgd(0.1), halves(), grad=hvd.grad), alone)
    x, y = halves()[0]

    def with_more(params: Any, x: Any, y: Any) -> Any:
        return loss(params, x, y), x.shape

    for wrap in (lambda f: f, lambda f: jax.jit(f)):
        value, gradients = wrap(hvd.value_and_grad(loss))(start(), x, y)
        expected, expected_gradients = jax.value_and_grad(loss)(start(), *whole()[0])
        np.testing.assert_allclose(hvd.allreduce(value), expected, rtol=1e-5)
        assert_same(gradients, expected_gradients)
    gradients, shape = hvd.grad(with_more, has_aux=True)(start(), x, y)
    assert_same(gradients, expected_gradients) or shape == x.shape
    (_, shape), both = hvd.value_and_grad(with_more, argnums=(0, 1), has_aux=True, op=hvd.Sum)(start(), x, y)
    assert shape == x.shape and len(both) == 2


def check_integers_have_no_gradient() -> None:
    """They stay what JAX makes of them; the others are reduced."""
    params = {"n": jnp.int32(3), "w": jnp.ones(2)}
    for wrap in (lambda f: f, jax.jit):
        step = wrap(hvd.grad(lambda p: (p["w"] * p["n"] * hvd.rank()).sum(), allow_int=True))
        found = step(params)
        assert found["n"].dtype == jax.dtypes.float0
        np.testing.assert_allclose(found["w"], 1.5)  # of 0 and 3
    none = hvd.grad(lambda n: n * 2.0, allow_int=True)(jnp.int32(3))
    assert none.dtype == jax.dtypes.float0


def check_process_set() -> None:
    alone = hvd.add_process_set([0])
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1), process_set=alone)
    found, expected = train(optimizer, halves()), train(optax.sgd(0.1), halves())
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    hvd.remove_process_set(alone)


def check_broadcast_parameters() -> None:
    rank = hvd.rank()
    tree = {
        "w": jnp.full((2, 3), float(rank)),
        "half": jnp.full(3, rank, jnp.bfloat16),
        "old key": jax.random.PRNGKey(rank),
        "key": jax.random.key(rank),
        "keys": jax.random.split(jax.random.key(rank, impl="rbg"), 3),
        "small": jnp.full(2, rank, jnp.float8_e4m3fn),
        "array": np.full(2, rank),
        "none": None,
        "number": rank,
        "rate": 0.5 * rank,
        "text": f"of rank {rank}",
        "empty": jnp.zeros((0, 3)),
    }
    result = hvd.broadcast_parameters(tree, root_rank=1)
    assert jax.tree.structure(result) == jax.tree.structure(tree)
    assert result["w"].tolist() == [[1.0] * 3] * 2 and result["half"].tolist() == [1, 1, 1]
    assert (result["old key"] == jax.random.PRNGKey(1)).all() and result["old key"].dtype == jnp.uint32
    assert result["key"] == jax.random.key(1)
    assert (result["keys"] == jax.random.split(jax.random.key(1, impl="rbg"), 3)).all()
    assert result["small"].dtype == jnp.float8_e4m3fn and result["small"].astype(jnp.float32)[0] == 1
    assert type(result["array"]) is np.ndarray and result["array"].tolist() == [1, 1]
    assert result["none"] is None and result["number"] == 1 and result["rate"] == 0.5
    assert result["text"] == "of rank 1" and result["empty"].shape == (0, 3)
    state = hvd.broadcast_optimizer_state(optax.adam(0.1 * rank).init({"w": jnp.ones(2)}), root_rank=0)
    assert int(state[0].count) == 0
