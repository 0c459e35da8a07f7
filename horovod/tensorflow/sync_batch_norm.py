"""Batch normalisation with the statistics of all ranks' batches, for Keras 3 and for tf_keras."""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

from horovod.common.basics import Average, size
from horovod.tensorflow import ops


def _over_ranks(mean: Any, variance: Any) -> tuple[Any, Any]:
    """The mean and variance over all ranks, if each has the same number of elements."""
    if size() == 1:
        return mean, variance
    # The variance can't be averaged, the mean of the squares can. One operation for both.
    # In float64: their difference may be far smaller than they are.
    exact = tf.cast(mean, tf.float64)
    both = tf.stack([exact, tf.cast(variance, tf.float64) + tf.square(exact)])
    # TensorFlow numbers them within the graph. The scopes of Keras around would be no names that all
    # ranks have: layers and models are numbered by what else a rank has made. The / leaves them out.
    with tf.name_scope("SyncBatchNormalization_Allreduce/"):
        both = ops._allreduce(both, "statistics", Average)
    exact, mean_of_squares = tf.unstack(both, num=2)
    return tf.cast(exact, mean.dtype), tf.cast(mean_of_squares - tf.square(exact), variance.dtype)


# tf_keras and Keras 2 have the argument, and in their default a kernel that computes the moments
# itself.
_TAKES_FUSED = "reduction_axes" in inspect.signature(tf.keras.layers.BatchNormalization._moments).parameters


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """BatchNormalization that normalises in training with the mean and variance over all ranks."""

    def __init__(self, fused: bool | None = False, **kwargs: Any) -> None:
        if fused or fused is None:
            raise ValueError("SyncBatchNormalization can't be fused: leave fused=False")
        if _TAKES_FUSED:
            kwargs["fused"] = False
        super().__init__(**kwargs)

    # Keras 3 calls it with the inputs and a mask, tf_keras with the axes to reduce, too.
    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        mean, variance = super()._moments(inputs, *args, **kwargs)
        return _over_ranks(mean, variance)
