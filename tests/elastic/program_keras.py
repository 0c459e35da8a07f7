"""Trains a small model with Keras's fit() while ranks come and go, as a plan says; see scenario.py."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras_model import small_model
from scenario import Scenario, faulty, finished

import horovod.keras as hvd

scenario = Scenario()
new_state = faulty(hvd.elastic.KerasState, scenario)
hvd.init()
model = small_model(scenario.start_rank)
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01 * hvd.size()))
model.compile(optimizer=optimizer, loss="mse")
state = new_state(model, epoch=0, batch=0, commits=0, rendezvous=0)


def set_rate() -> None:
    model.optimizer.learning_rate.assign(0.01 * hvd.size())


state.register_reset_callbacks([set_rate])


class Plan(keras.callbacks.Callback):
    """Faults, notes and the number of commits."""

    done = 0  # batches in this process

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        scenario.before_batch(state, batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        Plan.done += 1
        state.commits += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        before = state.batch  # of the last batch; UpdateBatchStateCallback has not been asked yet
        state.batch = scenario.batches
        scenario.after_epoch(state)
        state.batch = before
        if scenario.complete(state):
            self.model.stop_training = True
        state.commits += 1


def values(variables: list[Any]) -> list[Any]:
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


@hvd.elastic.run
def train(state: Any) -> None:
    shared = [*model.trainable_variables, *model.optimizer.variables]
    scenario.begin(state, values(shared), values(model.non_trainable_variables))
    if scenario.complete(state):
        return
    count = scenario.batches * 2
    numbers = np.arange(count).reshape(count, 1) + 64 * hvd.rank()
    inputs = (numbers % np.array([3, 5, 7, 11]) / np.array([3, 5, 7, 11])).astype("float32")
    model.fit(
        inputs,
        np.zeros((count, 2), "float32"),
        batch_size=2,
        epochs=scenario.epochs - state.epoch,
        shuffle=False,
        verbose=0,
        callbacks=[
            Plan(),
            hvd.elastic.CommitStateCallback(state),
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
        ],
    )


finished(scenario, lambda: train(state), batches=lambda: Plan.done, epochs=lambda: state.epoch)
