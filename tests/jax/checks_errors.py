"""Mistakes: every rank hears of them, and the next call works. Two ranks or more."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from util_expect import raises

import horovod.jax as hvd

# JAX has the first for programs that run later or for the first time, else the second.
OF_PROGRAMS: Any = (RuntimeError, ValueError)


def fine() -> None:
    assert jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(jnp.ones(2))[0] == hvd.size()
    assert hvd.allreduce(jnp.ones(2), op=hvd.Sum)[0] == hvd.size()


def blocked(call: Any) -> None:
    """Runs it to the end: errors come where it is called or where its results are used."""
    jax.block_until_ready(call())


def check_mismatch() -> None:
    x = jnp.ones(hvd.rank() + 1)
    for name in ("mismatch", None):
        with raises(hvd.HorovodInternalError, "mismatch" if name else "noname", "shape"):
            hvd.allreduce(x, name=name)
        with raises(OF_PROGRAMS, "Horovod allreduce:", "mismatch" if name else "noname", "shape"):
            blocked(lambda name=name: jax.jit(lambda x: hvd.allreduce(x, name=name))(x))
        fine()
    with raises(OF_PROGRAMS, "Horovod broadcast:", "root"):
        blocked(lambda: jax.jit(lambda x: hvd.broadcast(x, hvd.rank(), name="roots"))(x[:1]))
    fine()


def check_rows_that_differ() -> None:
    rows = jnp.ones((hvd.rank() + 1, 2))
    with raises(OF_PROGRAMS, "Horovod allgather:", "compiled for a result of shape", "outside of jit"):
        blocked(lambda: jax.jit(hvd.allgather)(rows))
    fine()
    with raises(ValueError, "splits", "outside of jit"):
        jax.jit(lambda x: hvd.alltoall(x, splits=[1] * hvd.size()))(jnp.ones(hvd.size()))
    with raises(TypeError, "outside of jit"):
        jax.jit(lambda x, splits: hvd.alltoall(x, splits=splits))(jnp.ones(2), jnp.ones(2, jnp.int32))
    with raises(ValueError, "first dimension"):
        jax.jit(hvd.allgather)(jnp.ones(()))
    fine()


def check_numbers_need_values() -> None:
    two, root, x = jnp.float32(2), jnp.int32(0), jnp.full(2, float(hvd.rank()))
    for wrap in (lambda f: f, jax.jit):
        scaled = wrap(lambda x: hvd.allreduce(x, prescale_factor=two, postscale_factor=np.float32(0.5)))(x)
        assert scaled[0] == (hvd.size() - 1) / 2 and wrap(lambda x: hvd.broadcast(x, root))(x)[0] == 0
    for what, call in (
        ("prescale_factor", lambda x, k: hvd.allreduce(x, prescale_factor=k)),
        ("postscale_factor", lambda x, k: hvd.reducescatter(x, postscale_factor=k)),
        ("root_rank", lambda x, k: hvd.broadcast(x, k)),
    ):
        with raises(TypeError, "hvd.", what, "traced"):
            jax.jit(call)(x, 1)
    fine()


def check_parameters_need_values() -> None:
    with raises(TypeError, "outside of jit"):
        jax.jit(hvd.broadcast_parameters)(jnp.ones(3))
    with raises(ValueError, "rank 1", "['extra']"):
        hvd.broadcast_parameters({"w": jnp.ones(2)} | ({"extra": jnp.ones(1)} if hvd.rank() == 1 else {}))
    fine()


def check_what_failed_is_not_saved() -> None:
    """By the state of an elastic job, which is told of results that are still to come."""

    @jax.jit
    def long(x: Any, own: Any) -> Any:
        for _ in range(10):
            x = x @ x / 500
        return x + hvd.allreduce(own, name="of other shapes").sum()

    for state in (
        hvd.elastic.JaxState(x=jnp.ones((500, 500)), step=0),
        hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, x=jnp.ones((500, 500)), step=0),
    ):
        for step in range(2):
            with raises(OF_PROGRAMS, "Horovod allreduce:", "of other shapes"):
                state.x, state.step = long(state.x, jnp.ones(hvd.rank() + 1)), step
                state.save()
            state.restore()
            assert state.x[0, 0] == 1 and state.step == 0
    fine()


def check_other_worlds() -> None:
    """What was compiled for other ranks is compiled again; that JAX can't do so for is an error."""
    step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
    gather = jax.jit(hvd.allgather)
    cubed = jax.jit(jax.grad(lambda x: (hvd.broadcast(x, 0) ** 3).sum()))  # not 0 on rank 0 alone
    ahead = gather.lower(jnp.ones(2)).compile()
    step(jnp.ones(2)), gather(jnp.ones(2)), cubed(jnp.ones(2))
    own, size = hvd.rank(), hvd.size()
    hvd.shutdown()
    for call in (hvd.allreduce, jax.jit(hvd.allreduce), step, gather):
        with raises(OF_PROGRAMS, "hvd.init()"):
            blocked(lambda call=call: call(jnp.ones(2)))
    with raises(hvd.HorovodInternalError, "hvd.init()"):  # not those of this rank alone
        hvd.grad(jnp.sum)(jnp.ones(2))
    hvd.init(comm=[own])
    assert step(jnp.ones(2))[0] == 1 and gather(jnp.ones(2)).shape == (2,)
    assert cubed(jnp.ones(2))[0] == 3  # every rank is number 0 now
    with raises(OF_PROGRAMS, f"compiled for {size} ranks, but there are 1", "lower()"):
        blocked(lambda: ahead(jnp.ones(2)))
    hvd.shutdown()
    hvd.init()
    assert step(jnp.ones(2))[0] == size and gather(jnp.ones(2)).shape == (2 * size,)
    assert cubed(jnp.ones(2))[0] == (3 if own == 0 else 0) and ahead(jnp.ones(2)).shape == (2 * size,)


def check_nothing_is_compiled_again_for_the_same_world() -> None:
    traces = []

    @jax.jit
    def step(x: object) -> object:
        traces.append(x)
        return hvd.allreduce(x, op=hvd.Sum)

    for _ in range(3):
        assert step(jnp.ones(2))[0] == hvd.size()
        hvd.shutdown()
        hvd.init()
    assert len(traces) == 1


def check_process_sets_with_other_numbers() -> None:
    sets = [hvd.ProcessSet([rank]) for rank in range(hvd.size())]
    mine = sets[hvd.rank()]
    step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=mine))
    for order in (sets, sets[::-1]):
        hvd.shutdown()
        hvd.init(process_sets=order)
        assert step(jnp.ones(2))[0] == 1
        hvd.barrier()
    hvd.shutdown()
    hvd.init()
