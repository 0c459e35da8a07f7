"""How many images are recognised, counted over all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd


def evaluate(network: Any, batches: Any) -> tuple[int, float, float, float]:
    """Number of images, percentage right at first and within five guesses, and mean loss.

    The ranks may have different numbers of images and batches: sums are added, not means averaged.
    """

    def count(images: Any, labels: Any) -> Any:
        scores = network(images, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
        first, five = (tf.nn.in_top_k(labels, scores, min(k, scores.shape[-1])) for k in (1, 5))
        sums = [tf.cast(tf.size(labels), tf.float64)]
        sums += [tf.reduce_sum(tf.cast(values, tf.float64)) for values in (first, five, losses)]
        return tf.stack(sums)

    mine = np.zeros(4)
    compiled = tf.function(count, reduce_retracing=True)
    for images, labels in batches:
        mine += compiled(images, labels).numpy()
    images, first, five, loss = hvd.allreduce(mine, op=hvd.Sum, name="evaluation").numpy()
    return int(images), 100.0 * first / images, 100.0 * five / images, loss / images
