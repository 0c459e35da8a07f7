"""Two ranks on half batches are one process on whole batches."""

from __future__ import annotations

import copy
from typing import Any

import keras_setup as setup
from keras_setup import hvd, keras
from util_expect import skip

_alone: dict[str, Any] = {}  # tracing takes long: one reference serves several checks


def plain_sgd() -> Any:
    if "sgd" not in _alone:
        _alone["sgd"] = setup.trained_alone(setup.sgd())
    return _alone["sgd"]


def check_sgd() -> None:
    model = setup.trained_together(hvd.DistributedOptimizer(setup.sgd()))
    setup.assert_same(model, plain_sgd())
    setup.assert_same_everywhere(model.get_weights())


def check_adam() -> None:
    alone = setup.trained_alone(keras.optimizers.Adam(0.01), epochs=2)
    together = setup.trained_together(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), epochs=2)
    setup.assert_same(together, alone)


def check_without_wrap_ranks_differ() -> None:
    try:
        setup.assert_same(setup.trained_together(setup.sgd(), run_eagerly=True), plain_sgd())
    except AssertionError:
        return
    raise AssertionError("the test of equality can't fail")


def check_run_eagerly() -> None:
    setup.assert_same(
        setup.trained_together(hvd.DistributedOptimizer(setup.sgd()), run_eagerly=True), plain_sgd()
    )


def check_copies_reduce_as_well() -> None:
    for copied in (copy.deepcopy, copy.copy):
        model = setup.trained_together(copied(hvd.DistributedOptimizer(setup.sgd())))
        setup.assert_same(model, plain_sgd())


def check_op_sum() -> None:
    optimizer = hvd.DistributedOptimizer(setup.sgd(0.05), op=hvd.Sum)
    setup.assert_same(setup.trained_together(optimizer), plain_sgd())


def check_options_change_nothing_else() -> None:
    import horovod.numpy as hvd_np

    for options in (
        {"gradient_predivide_factor": 2.0},
        {"groups": 2},
        {"name": "MyReduction", "groups": 1, "compression": hvd.Compression.none},
    ):
        optimizer = hvd.DistributedOptimizer(setup.sgd(), **options)
        setup.assert_same(setup.trained_together(optimizer, run_eagerly=True), plain_sgd())
    compressed = hvd.DistributedOptimizer(setup.sgd(), compression=hvd.Compression.fp16)
    setup.assert_same(setup.trained_together(compressed, run_eagerly=True), plain_sgd(), tolerance=2e-3)
    assert hvd_np.size() == 2


def check_groups_of_variables() -> None:
    model = setup.small_model()
    groups = [[model.trainable_variables[0], model.trainable_variables[3]], [model.trainable_variables[1]]]
    optimizer = hvd.DistributedOptimizer(setup.sgd(), groups=groups)
    setup.assert_same(setup.trained_together(optimizer, model=lambda: model), plain_sgd())


def check_wrapping_twice_reduces_once() -> None:
    optimizer = hvd.DistributedOptimizer(hvd.DistributedOptimizer(setup.sgd(0.05)), op=hvd.Sum)
    setup.assert_same(setup.trained_together(optimizer, run_eagerly=True), plain_sgd())


def check_backward_passes() -> None:
    if setup.ON_JAX:
        return  # Keras's own accumulation does it
    # Two passes of 4 rows on each of two ranks, averaged: one step of 16 rows.
    optimizer = hvd.DistributedOptimizer(
        setup.sgd(), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    model = setup.trained_together(optimizer, batch=setup.HALF // 2)
    setup.assert_same(model, plain_sgd())
    assert int(optimizer.iterations) == 8  # each pass counts
    summed = hvd.DistributedOptimizer(setup.sgd(0.05), backward_passes_per_step=2)
    setup.assert_same(setup.trained_together(summed, batch=setup.HALF // 2, run_eagerly=True), plain_sgd())


def check_gradient_that_comes_with_a_later_pass() -> None:
    if setup.ON_JAX:
        return
    import numpy as np

    model = setup.small_model()
    variables = model.trainable_variables[:2]
    before = [np.asarray(values) for values in model.get_weights()[:2]]
    optimizer = hvd.DistributedOptimizer(setup.sgd(1.0), backward_passes_per_step=2)
    ones = [keras_ones(values.shape, hvd.rank() + 1.0) for values in before]
    for gradients in ([ones[0], None], [ones[0], ones[1]], [None, ones[1]], [ones[0], None]):
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
    for values, start, sums in zip(model.get_weights()[:2], before, (3, 2), strict=True):
        np.testing.assert_allclose(values, start - sums * 1.5, rtol=1e-5)


def keras_ones(shape: Any, factor: float) -> Any:
    import numpy as np

    values = np.full(shape, factor, "float32")
    if setup.LEGACY:
        import tensorflow as tf

        return tf.constant(values)
    return keras.ops.convert_to_tensor(values)


def check_own_accumulation_of_keras() -> None:
    if setup.LEGACY:
        skip("legacy Keras does not accumulate")
    optimizer = hvd.DistributedOptimizer(setup.sgd(gradient_accumulation_steps=2))
    setup.assert_same(setup.trained_together(optimizer, batch=setup.HALF // 2), plain_sgd())


def check_clipping_works_on_the_reduced() -> None:
    alone = setup.trained_alone(setup.sgd(global_clipnorm=0.05), run_eagerly=True)
    together = setup.trained_together(
        hvd.DistributedOptimizer(setup.sgd(global_clipnorm=0.05)), run_eagerly=True
    )
    setup.assert_same(together, alone)


def check_weights_of_half_a_model_stay_local() -> None:
    import numpy as np

    import horovod.numpy as hvd_np

    model = setup.small_model()
    optimizer = hvd.PartialDistributedOptimizer(setup.sgd(), local_layers=model.layers[0])
    setup.trained_together(optimizer, model=lambda: model, run_eagerly=True)
    firsts = hvd_np.allgather_object(model.layers[0].get_weights()[0])
    assert not np.allclose(firsts[0], firsts[1])

    # Scaled: each rank moves by half of its own gradient.
    model, plain = setup.small_model(), setup.small_model()
    optimizer = hvd.DistributedOptimizer(setup.sgd())
    for variable in model.trainable_variables:
        optimizer.register_local_var(variable)
    for each, opt in ((model, optimizer), (plain, setup.sgd(0.05))):
        each.compile(opt, "mse", run_eagerly=True)
        each.train_on_batch(setup.share(setup.X)[: setup.HALF], setup.share(setup.Y)[: setup.HALF])
    setup.assert_same(model, plain)


def check_process_set() -> None:
    alone = hvd.add_process_set([0])
    try:
        model = setup.small_model()
        optimizer = hvd.DistributedOptimizer(setup.sgd(), process_set=alone)
        setup.trained_together(optimizer, model=lambda: model, run_eagerly=True)
        setup.assert_same(model, setup.trained_together(setup.sgd(), run_eagerly=True))
    finally:
        hvd.remove_process_set(alone)
