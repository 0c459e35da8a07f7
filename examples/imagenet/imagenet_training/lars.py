"""Layer-wise adaptive rate scaling, for batches of many thousand images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def scaled(gradients: Sequence[Any], variables: Sequence[Any], eta: float) -> list[Any]:
    """Gradients whose size is `eta` times that of their layer's weights. Scales and offsets keep theirs."""

    def ratio(gradient: Any, variable: Any) -> Any:
        weight, slope = tf.norm(tf.convert_to_tensor(variable)), tf.norm(gradient)
        return tf.where((weight > 0) & (slope > 0), eta * weight / (slope + 1e-12), 1.0)

    return [
        gradient * ratio(gradient, variable) if len(variable.shape) > 1 else gradient
        for gradient, variable in zip(gradients, variables, strict=True)
    ]
