"""Trains a small model in a compiled step while ranks come and go, as a plan says; see scenario.py."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scenario import Scenario, faulty, finished

import horovod.jax as hvd

scenario = Scenario()
new_state = faulty(hvd.elastic.JaxState, scenario)
hvd.init()
optimizer = hvd.DistributedOptimizer(optax.adam(0.01))
key = jax.random.key(1234 + scenario.start_rank)  # only sync() makes what follows the same
weights = {"w": jax.random.normal(key, (4, 2)), "b": jnp.zeros(2)}
state = new_state(
    weights=weights,
    optimizer=optimizer.init(weights),
    key=key,
    # Of another structure in new processes than in those that have trained.
    losses=[],
    epoch=0,
    batch=0,
    commits=0,
    rendezvous=0,
)
traces = 0


@partial(jax.jit, donate_argnums=(0, 1, 2))
def step(weights: Any, state: Any, key: Any, inputs: Any) -> Any:
    """What depends on the number of ranks: gather's shape and its gradient, and the root's gradient."""
    global traces
    traces += 1

    def loss(weights: Any) -> Any:
        out = inputs @ weights["w"] + hvd.broadcast(weights["b"], 0, name="bias")
        return (hvd.allgather(out, name="outputs") ** 2).mean()

    value, gradients = jax.value_and_grad(loss)(weights)
    own = jax.grad(lambda x: hvd.broadcast(x, 0, name="root").sum())(jnp.float32(0))
    updates, state = optimizer.update(gradients, state, weights)
    return optax.apply_updates(weights, updates), state, jax.random.split(key)[0], (value, own)


@hvd.elastic.run
def train(state: Any) -> None:
    shared = jax.tree.leaves((state.weights, state.optimizer, jax.random.key_data(state.key), state.losses))
    scenario.begin(state, map(np.asarray, shared))
    while not scenario.complete(state):
        while state.batch < scenario.batches:
            scenario.before_batch(state)
            number = (state.epoch * scenario.batches + state.batch) * 64 + hvd.rank() * 2
            inputs = jnp.array([[(number + i) % k / k for k in (3, 5, 7, 11)] for i in range(2)])
            state.weights, state.optimizer, state.key, (loss, own) = step(
                state.weights, state.optimizer, state.key, inputs
            )
            assert float(own) == (hvd.rank() == 0), "a program of another world"
            state.losses = [*state.losses, loss]
            state.batch += 1
            state.commits += 1
            state.commit()
        scenario.after_epoch(state)
        state.batch = 0
        state.epoch += 1
        state.commits += 1
        state.commit()


finished(scenario, lambda: train(state), traces=lambda: traces, worlds=lambda: state.rendezvous)
