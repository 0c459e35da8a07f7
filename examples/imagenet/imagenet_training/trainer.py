"""One step of training, and the state that steps change."""

from __future__ import annotations

import argparse
from typing import Any

import keras
import tensorflow as tf

import horovod.tensorflow as hvd
from imagenet_training import lars, model
from imagenet_training.options import PRECISIONS


class Trainer:
    """A model, its optimizer, and the number of steps and epochs done."""

    def __init__(self, options: argparse.Namespace) -> None:
        keras.mixed_precision.set_global_policy(PRECISIONS[options.precision])
        keras.utils.set_random_seed(options.seed + hvd.rank())
        self._options = options
        self.network = model.build(options.model, options.num_classes, options.image_size)
        self.optimizer = keras.optimizers.SGD(0.0, options.momentum)
        self.optimizer.build(self.network.trainable_variables)
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False)
        # Kept beside the steps: how far they go depends on the number of processes.
        self.epoch = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self._train = tf.function(self._step)

    def synchronize(self) -> None:
        """Everyone gets rank 0's state."""
        state = [*self.network.variables, *self.optimizer.variables, self.step, self.epoch]
        hvd.broadcast_variables(state, root_rank=0)

    def merge_statistics(self) -> None:
        """Gives all ranks the mean of their batch statistics, the only part of the state that differs."""
        statistics = self.network.non_trainable_variables
        means = hvd.grouped_allreduce([tf.convert_to_tensor(one) for one in statistics], name="statistics")
        for variable, mean in zip(statistics, means, strict=True):
            variable.assign(mean)

    def train(self, images: Any, labels: Any, rate: float) -> tuple[float, float]:
        """Takes a step. Returns this rank's loss, and the loss with the weights' part."""
        self.optimizer.learning_rate = rate
        loss, whole = self._train(images, labels)
        self.step.assign_add(1)
        return float(loss), float(whole)

    def _step(self, images: Any, labels: Any) -> tuple[Any, Any]:
        options = self._options
        scale = options.loss_scale if options.precision == "fp16" else 1.0
        weights = self.network.trainable_variables
        smooth = options.label_smoothing
        with tf.GradientTape() as tape:
            scores = self.network(images, training=True)
            wanted = tf.one_hot(
                labels,
                options.num_classes,
                1.0 - smooth + smooth / options.num_classes,
                smooth / options.num_classes,
            )
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(wanted, scores))
            # Kernels only: to shrink scales and offsets does harm.
            squares = [tf.nn.l2_loss(tf.convert_to_tensor(w)) for w in weights if len(w.shape) > 1]
            whole = loss + options.weight_decay * tf.add_n(squares)
            target = whole * scale
        compression = hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none
        tape = hvd.DistributedGradientTape(tape, compression=compression)
        gradients = [gradient / scale for gradient in tape.gradient(target, weights)]
        if options.lars:
            gradients = lars.scaled(gradients, weights, options.lars_eta)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return loss, whole
