"""Trains a small model with a tf.function while ranks come and go, as a plan says; see scenario.py."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras_model import small_model
from scenario import Scenario, faulty, finished

import horovod.tensorflow as hvd

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(2)
scenario = Scenario()
new_state = faulty(hvd.elastic.TensorFlowKerasState, scenario)
hvd.init()
model = small_model(scenario.start_rank)
optimizer = keras.optimizers.Adam(0.01 * hvd.size())
state = new_state(model, optimizer, epoch=0, batch=0, commits=0, rendezvous=0)
traces = 0


def set_rate() -> None:
    optimizer.learning_rate.assign(0.01 * hvd.size())


state.register_reset_callbacks([set_rate])


def as_array(variable: Any) -> Any:
    return variable.numpy()


@tf.function
def step(inputs: tf.Tensor) -> tf.Tensor:
    global traces
    traces += 1
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(inputs, training=True)))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


@hvd.elastic.run
def train(state: Any) -> None:
    shared = [*model.trainable_variables, *optimizer.variables]
    scenario.begin(state, map(as_array, shared), map(as_array, model.non_trainable_variables))
    while not scenario.complete(state):
        while state.batch < scenario.batches:
            scenario.before_batch(state)
            number = (state.epoch * scenario.batches + state.batch) * 64 + hvd.rank() * 2
            inputs = tf.constant([[(number + i) % k / k for k in (3, 5, 7, 11)] for i in range(2)])
            step(inputs)
            state.batch += 1
            state.commits += 1
            state.commit()
        scenario.after_epoch(state)
        state.batch = 0
        state.epoch += 1
        state.commits += 1
        state.commit()


finished(scenario, lambda: train(state), traces=lambda: traces)
