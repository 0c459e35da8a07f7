"""The programs that tutorials about Horovod show, with data in place of the dots."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import tensorflow as tf2

import horovod.tensorflow as hvd


def check_train_step_with_a_tape() -> None:
    tf = tf2
    gpus = tf.config.experimental.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    optimizer = tf.optimizers.Adam(0.001 * hvd.size())
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(10, activation="softmax")]
    )
    loss_fn = tf.losses.SparseCategoricalCrossentropy()

    @tf.function
    def train_step(
        data: Any, model: Any, loss_fn: Any, optimizer: Any, first_batch: bool, compress: bool = True
    ) -> Any:
        batch, target = data
        with tf.GradientTape() as tape:
            output = model(batch, training=True)
            loss = loss_fn(target, output)

        compression = hvd.Compression.fp16 if compress else hvd.Compression.none
        tape = hvd.DistributedGradientTape(tape, compression=compression)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        if first_batch:
            hvd.broadcast_variables(model.variables, root_rank=0)
            # Called in the tutorials; Keras 3 has a plain list here.
            variables = optimizer.variables
            hvd.broadcast_variables(variables() if callable(variables) else variables, root_rank=0)
        return loss, output

    generator = np.random.default_rng(hvd.rank())
    x = tf.constant(generator.normal(size=(32, 8)), tf.float32)
    data = (x, tf.argmax(x[:, :5], axis=1))
    losses = [
        float(train_step(data, model, loss_fn, optimizer, number == 0, compress=number % 2 == 0)[0])
        for number in range(40)
    ]
    assert losses[-1] < losses[0]
    for variable in model.variables:
        value = tf.convert_to_tensor(variable)
        np.testing.assert_array_equal(value, hvd.broadcast(value, 0))


def check_monitored_training_session() -> None:
    tf = tf2.compat.v1
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    with tf.Graph().as_default(), tempfile.TemporaryDirectory() as directory:
        x = tf.random_normal([16, 4], seed=hvd.rank())
        w = tf.get_variable("w", [4, 1], initializer=tf.random_normal_initializer(seed=hvd.rank()))
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - tf.reduce_sum(x, axis=1, keepdims=True)))
        opt = tf.train.AdagradOptimizer(0.5 * hvd.size())
        opt = hvd.DistributedOptimizer(opt)
        global_step = tf.train.get_or_create_global_step()
        hooks = [
            hvd.BroadcastGlobalVariablesHook(0),
            tf.train.StopAtStepHook(last_step=60),
            tf.train.LoggingTensorHook(tensors={"step": global_step, "loss": loss}, every_n_iter=100),
        ]
        train_op = opt.minimize(loss, global_step=global_step)
        checkpoint_dir = directory if hvd.rank() == 0 else None
        with tf.train.MonitoredTrainingSession(
            checkpoint_dir=checkpoint_dir, config=config, hooks=hooks
        ) as mon_sess:
            while not mon_sess.should_stop():
                mon_sess.run(train_op)
                weights = mon_sess.run_step_fn(lambda step_context: step_context.session.run(w))
        assert (tf.train.latest_checkpoint(directory) is not None) == (hvd.rank() == 0)
    np.testing.assert_allclose(weights, np.ones((4, 1)), atol=0.2)
    np.testing.assert_array_equal(weights, hvd.broadcast(weights, 0))
