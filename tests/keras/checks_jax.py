"""What only the JAX backend of Keras 3 does in its own way. Within fit() everything is compiled."""

from __future__ import annotations

from typing import Any

import jax
import keras_setup as setup
import numpy as np
from keras_setup import hvd, keras
from util_expect import raises


def check_training() -> None:
    for make in (setup.sgd, lambda: keras.optimizers.Adam(0.01)):
        together = setup.trained_together(hvd.DistributedOptimizer(make()), epochs=2)
        setup.assert_same(together, setup.trained_alone(make(), epochs=2))
        setup.assert_same_everywhere(together.get_weights())
    assert together._resolve_auto_jit_compile() or together.jit_compile


# So that the scaled gradients of half a batch fit into float16, and no step is skipped.
SMALL = np.float32(0.1)


def mixed_fit(optimizer: Any, poison: bool) -> Any:
    """Half precision; `poison`: rank 1's second batch has gradients that are not finite there."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = setup.small_model()
    finally:
        keras.mixed_precision.set_global_policy("float32")
    model.compile(optimizer, "mse")
    x = setup.share(setup.X) * SMALL
    if poison and hvd.rank() == 1:
        x[setup.HALF] = np.inf
    model.fit(x, setup.share(setup.Y) * SMALL, batch_size=setup.HALF, shuffle=False, verbose=0)
    return model


def check_mixed_precision() -> None:
    clean = mixed_fit(hvd.DistributedOptimizer(setup.sgd()), poison=False)
    alone = setup.small_model()
    alone.compile(setup.sgd(), "mse")
    alone.fit(setup.X * SMALL, setup.Y * SMALL, batch_size=2 * setup.HALF, shuffle=False, verbose=0)
    setup.assert_same(clean, alone, tolerance=2e-3)
    scaled = keras.optimizers.LossScaleOptimizer(setup.sgd())
    for optimizer in (hvd.DistributedOptimizer(setup.sgd()), hvd.DistributedOptimizer(scaled)):
        model = mixed_fit(optimizer, poison=True)
        assert type(model.optimizer).__name__ == "LossScaleOptimizer"
        assert all(np.isfinite(values).all() for values in model.get_weights())
        setup.assert_same_everywhere(model.get_weights())


def check_callbacks() -> None:
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    apart = model.layers[0].bias
    model.compile(hvd.DistributedOptimizer(setup.sgd(0.1, momentum=0.9)), "mse", metrics=["mae"])
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=apart)
    before = model.layers[0].kernel.numpy()
    apart.assign(np.full(4, float(hvd.rank())))
    history = model.fit(
        setup.share(setup.X),
        setup.share(setup.Y),
        batch_size=setup.HALF,
        epochs=3,
        verbose=0,
        shuffle=False,
        callbacks=[
            broadcast,
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2),
        ],
    )
    assert broadcast.broadcast_done and not np.array_equal(before, model.layers[0].kernel.numpy())
    # The bias of each rank stays its own; gradients are the same, so it keeps its distance.
    weights = model.get_weights()
    setup.assert_same_everywhere([weights[0], *weights[2:]])
    np.testing.assert_allclose(
        hvd.allgather(weights[1][:1])[1] - hvd.allgather(weights[1][:1])[0], 1, rtol=1e-4
    )
    setup.assert_same_everywhere([np.array(history.history["loss"]), np.array(history.history["mae"])])
    np.testing.assert_allclose(history.history["lr"][-1], 0.1, rtol=1e-6)
    assert history.history["lr"][0] < 0.1


def check_loop_of_ones_own() -> None:
    """stateless_apply() within jit, as Keras's documents have it."""
    model, optimizer = setup.small_model(), hvd.DistributedOptimizer(setup.sgd())
    optimizer.build(model.trainable_variables)

    def loss(trainable: Any, x: Any, y: Any) -> Any:
        predicted, _ = model.stateless_call(trainable, [], x)
        return keras.ops.mean((predicted - y) ** 2)

    @jax.jit
    def step(trainable: Any, state: Any, x: Any, y: Any) -> Any:
        return optimizer.stateless_apply(state, jax.grad(loss)(trainable, x, y), trainable)

    trainable, state = [v.value for v in model.trainable_variables], [v.value for v in optimizer.variables]
    x, y = setup.share(setup.X), setup.share(setup.Y)
    for first in range(0, len(x), setup.HALF):
        trainable, state = step(
            trainable, state, x[first : first + setup.HALF], y[first : first + setup.HALF]
        )
    for variable, value in zip(model.trainable_variables, trainable, strict=True):
        variable.assign(value)
    setup.assert_same(model, setup.trained_alone(setup.sgd()))


def check_accumulation_is_keras_own() -> None:
    with raises(ValueError, "gradient_accumulation_steps"):
        hvd.DistributedOptimizer(setup.sgd(), backward_passes_per_step=2)
    optimizer = hvd.DistributedOptimizer(setup.sgd(gradient_accumulation_steps=2))
    setup.assert_same(
        setup.trained_together(optimizer, batch=setup.HALF // 2), setup.trained_alone(setup.sgd())
    )


def check_local_layers_within_fit() -> None:
    model = setup.small_model()
    optimizer = hvd.PartialDistributedOptimizer(setup.sgd(), local_layers=model.layers[0])
    setup.trained_together(optimizer, model=lambda: model)
    firsts = hvd.allgather(model.get_weights()[0][None])
    assert not np.allclose(firsts[0], firsts[1])


def check_values() -> None:
    assert isinstance(hvd.allreduce(np.ones(2)), jax.Array)
    assert float(hvd.allreduce(float(hvd.rank()), op=hvd.Sum)) == sum(range(hvd.size()))
    assert hvd.broadcast(np.full(2, hvd.rank()), 1).tolist() == [1, 1]
    assert hvd.reducescatter(np.ones(hvd.size()), op=hvd.Sum).tolist() == [hvd.size()]
