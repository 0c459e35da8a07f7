"""Two ranks on half batches are one process on whole batches."""

from __future__ import annotations

from typing import Any

from keras_setup import (
    HALF,
    LEGACY,
    ON_JAX,
    X,
    Y,
    assert_same,
    assert_same_everywhere,
    hvd,
    keras,
    sgd,
    share,
    small_model,
    trained_alone,
    trained_together,
)
from util_expect import skip

_alone: dict[str, Any] = {}  # tracing takes long: one reference serves several checks


def plain_sgd() -> Any:
    if "sgd" not in _alone:
        _alone["sgd"] = trained_alone(sgd())
    return _alone["sgd"]


def check_sgd() -> None:
    model = trained_together(hvd.DistributedOptimizer(sgd()))
    assert_same(model, plain_sgd())
    assert_same_everywhere(model.get_weights())


def check_adam() -> None:
    alone = trained_alone(keras.optimizers.Adam(0.01), epochs=2)
    together = trained_together(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), epochs=2)
    assert_same(together, alone)


def check_without_wrap_ranks_differ() -> None:
    try:
        assert_same(trained_together(sgd(), run_eagerly=True), plain_sgd())
    except AssertionError:
        return
    raise AssertionError("the test of equality can't fail")


def check_run_eagerly() -> None:
    assert_same(trained_together(hvd.DistributedOptimizer(sgd()), run_eagerly=True), plain_sgd())


def check_op_sum() -> None:
    optimizer = hvd.DistributedOptimizer(sgd(0.05), op=hvd.Sum)
    assert_same(trained_together(optimizer), plain_sgd())


def check_options_change_nothing_else() -> None:
    import horovod.numpy as hvd_np

    for options in (
        {"gradient_predivide_factor": 2.0},
        {"groups": 2},
        {"name": "MyReduction", "groups": 1, "compression": hvd.Compression.none},
    ):
        optimizer = hvd.DistributedOptimizer(sgd(), **options)
        assert_same(trained_together(optimizer, run_eagerly=True), plain_sgd())
    compressed = hvd.DistributedOptimizer(sgd(), compression=hvd.Compression.fp16)
    assert_same(trained_together(compressed, run_eagerly=True), plain_sgd(), tolerance=2e-3)
    assert hvd_np.size() == 2


def check_groups_of_variables() -> None:
    model = small_model()
    groups = [[model.trainable_variables[0], model.trainable_variables[3]], [model.trainable_variables[1]]]
    optimizer = hvd.DistributedOptimizer(sgd(), groups=groups)
    assert_same(trained_together(optimizer, model=lambda: model), plain_sgd())


def check_wrapping_twice_reduces_once() -> None:
    optimizer = hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd(0.05)), op=hvd.Sum)
    assert_same(trained_together(optimizer, run_eagerly=True), plain_sgd())


def check_backward_passes() -> None:
    if ON_JAX:
        return  # Keras's own accumulation does it
    # Two passes of 4 rows on each of two ranks, averaged: one step of 16 rows.
    optimizer = hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2, average_aggregated_gradients=True)
    model = trained_together(optimizer, batch=HALF // 2)
    assert_same(model, plain_sgd())
    assert int(optimizer.iterations) == 8  # each pass counts
    summed = hvd.DistributedOptimizer(sgd(0.05), backward_passes_per_step=2)
    assert_same(trained_together(summed, batch=HALF // 2, run_eagerly=True), plain_sgd())


def check_gradient_that_comes_with_a_later_pass() -> None:
    if ON_JAX:
        return
    import numpy as np

    model = small_model()
    variables = model.trainable_variables[:2]
    before = [np.asarray(values) for values in model.get_weights()[:2]]
    optimizer = hvd.DistributedOptimizer(sgd(1.0), backward_passes_per_step=2)
    ones = [keras_ones(values.shape, hvd.rank() + 1.0) for values in before]
    for gradients in ([ones[0], None], [ones[0], ones[1]], [None, ones[1]], [ones[0], None]):
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
    for values, start, sums in zip(model.get_weights()[:2], before, (3, 2), strict=True):
        np.testing.assert_allclose(values, start - sums * 1.5, rtol=1e-5)


def keras_ones(shape: Any, factor: float) -> Any:
    import numpy as np

    values = np.full(shape, factor, "float32")
    if LEGACY:
        import tensorflow as tf

        return tf.constant(values)
    return keras.ops.convert_to_tensor(values)


def check_own_accumulation_of_keras() -> None:
    if LEGACY:
        skip("legacy Keras does not accumulate")
    optimizer = hvd.DistributedOptimizer(sgd(gradient_accumulation_steps=2))
    assert_same(trained_together(optimizer, batch=HALF // 2), plain_sgd())


def check_clipping_works_on_the_reduced() -> None:
    alone = trained_alone(sgd(global_clipnorm=0.05), run_eagerly=True)
    together = trained_together(hvd.DistributedOptimizer(sgd(global_clipnorm=0.05)), run_eagerly=True)
    assert_same(together, alone)


def check_weights_of_half_a_model_stay_local() -> None:
    import numpy as np

    import horovod.numpy as hvd_np

    model = small_model()
    optimizer = hvd.PartialDistributedOptimizer(sgd(), local_layers=model.layers[0])
    trained_together(optimizer, model=lambda: model, run_eagerly=True)
    firsts = hvd_np.allgather_object(model.layers[0].get_weights()[0])
    assert not np.allclose(firsts[0], firsts[1])

    # Scaled: each rank moves by half of its own gradient.
    model, plain = small_model(), small_model()
    optimizer = hvd.DistributedOptimizer(sgd())
    for variable in model.trainable_variables:
        optimizer.register_local_var(variable)
    for each, opt in ((model, optimizer), (plain, sgd(0.05))):
        each.compile(opt, "mse", run_eagerly=True)
        each.train_on_batch(share(X)[:HALF], share(Y)[:HALF])
    assert_same(model, plain)


def check_process_set() -> None:
    alone = hvd.add_process_set([0])
    try:
        model = small_model()
        optimizer = hvd.DistributedOptimizer(sgd(), process_set=alone)
        trained_together(optimizer, model=lambda: model, run_eagerly=True)
        assert_same(model, trained_together(sgd(), run_eagerly=True))
    finally:
        hvd.remove_process_set(alone)
