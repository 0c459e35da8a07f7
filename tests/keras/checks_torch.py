"""What only the torch backend of Keras 3 does in its own way."""

from __future__ import annotations

import functools

import numpy as np
import torch
from keras_setup import assert_same_everywhere, hvd, keras, sgd, trained_together


def check_gradient_that_comes_in_a_later_pass() -> None:
    """A variable that the first batch of an accumulation does not use."""
    always, later = keras.Variable(np.zeros(2)), keras.Variable(np.zeros(2))
    optimizer = hvd.DistributedOptimizer(sgd(1.0), backward_passes_per_step=2)
    gradient = torch.full((2,), hvd.rank() + 1.0)
    mean = sum(range(1, hvd.size() + 1)) / hvd.size()
    for step in (1, 2):
        optimizer.apply([gradient, None], [always, later])
        optimizer.apply([gradient, gradient], [always, later])
        assert keras.ops.convert_to_numpy(always).tolist() == [-2 * mean * step] * 2
        assert keras.ops.convert_to_numpy(later).tolist() == [-mean * step] * 2


def check_compiled_training_is_reduced() -> None:
    """torch.compile() must not get past the hook."""
    plain, torch.compile = torch.compile, functools.partial(torch.compile, backend="eager")
    try:
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
        assert_same_everywhere(trained_together(optimizer, jit_compile=True).get_weights())
    finally:
        torch.compile = plain
