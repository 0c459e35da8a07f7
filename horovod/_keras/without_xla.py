"""Keras compiles with XLA where it finds a GPU, without being asked.

Functions for a GPU can't call Horovod.
"""

from __future__ import annotations

import warnings
from typing import Any

from horovod._keras import flavours
from horovod._keras.classes import is_distributed
from horovod.common import basics


def leave_xla_out(keras: Any, model: Any) -> None:
    """Before fit() makes its function: has a model that trains with all ranks not compiled for a GPU."""
    if flavours.backend_of(keras) != flavours.TENSORFLOW or not _calls_horovod(keras, model):
        return
    from horovod.tensorflow import util, xla  # TensorFlow need not be there for other backends

    alone = basics.size() == 1 and not util.elastic()  # where nothing is called
    if not alone and model.jit_compile and xla.for_gpu():
        model.jit_compile = False
        if basics.rank() == 0:
            warnings.warn(
                "Keras would compile this model with XLA for the GPU, whose functions can't call Horovod: "
                "jit_compile is False now. model.compile(jit_compile=False) says so beforehand",
                stacklevel=2,
            )


def _calls_horovod(keras: Any, model: Any) -> bool:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:  # not compiled
        return False
    # A train_step() of the program's own may use hvd.DistributedGradientTape.
    own_step = type(model).train_step is not keras.Model.train_step
    return own_step or is_distributed(getattr(optimizer, "inner_optimizer", optimizer))
