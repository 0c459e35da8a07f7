"""Trains a convolutional network on MNIST in a TF1 MonitoredTrainingSession, on one or several machines:

    python TensorFlow_Multinode_Training_with_Horovod.py
    horovodrun -np 2 TensorFlow_Multinode_Training_with_Horovod.py
    horovodrun -n 2 -H host1,host2 TensorFlow_Multinode_Training_with_Horovod.py

Started again, it goes on from its last checkpoint. What makes it distributed is marked with "Horovod:".
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The threads of a TensorFlow that computes with OpenMP, which reads these when it is imported. The launcher
# says how many processes share the cores of this machine.
os.environ["OMP_NUM_THREADS"] = str(
    max(len(os.sched_getaffinity(0)) // int(os.environ.get("HOROVOD_LOCAL_SIZE", "1")), 1)
)
os.environ.setdefault("KMP_AFFINITY", "granularity=fine,compact,1,0")
os.environ.setdefault("KMP_BLOCKTIME", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats, load_digits
from program import add_checkpoint_dir, at_least_one, told_errors, training_parser
from training_report import Report, same_on_all_ranks, usable_directory


def convolution(x: Any, name: str, filters: int) -> Any:
    """5x5, ReLU, and half the width and height."""
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [5, 5, x.shape[-1], filters])
        bias = tf.get_variable("bias", [filters], initializer=tf.zeros_initializer())
    return tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME") + bias), 2, 2, "SAME")


def dense(x: Any, name: str, units: int) -> Any:
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [x.shape[-1], units])
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
    return tf.matmul(x, kernel) + bias


def build_model(images: Any, labels: Any) -> tuple[Any, Any]:
    """Loss and accuracy."""
    hidden = convolution(convolution(images, "conv1", 16), "conv2", 32)
    hidden = tf.nn.relu(dense(tf.reshape(hidden, [-1, 7 * 7 * 32]), "dense1", 128))
    logits = dense(hidden, "dense2", 10)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    right = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), labels)
    return loss, tf.reduce_mean(tf.cast(right, tf.float32))


def batches(x: Any, y: Any, size: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Without end, in another order each time."""
    generator = np.random.default_rng([seed, hvd.rank()])
    while True:
        order = generator.permutation(len(x))
        for start in range(0, max(len(x) - size, 0) + 1, size):
            chosen = order[start : start + size]
            yield x[chosen], y[chosen]


class LastValues(tf.train.SessionRunHook):
    """What is wanted of the session just before it closes."""

    def __init__(self, wanted: Any, feed: dict[Any, Any]) -> None:
        self._wanted, self._feed = wanted, feed
        self.values: Any = None

    def end(self, session: Any) -> None:
        self.values = session.run(self._wanted, self._feed)


def saved_step(checkpoint_dir: Path) -> int:
    """The step of rank 0's last checkpoint, 0 without one."""
    latest = tf.train.latest_checkpoint(str(checkpoint_dir))
    step = int(tf.train.load_variable(latest, "global_step")) if hvd.rank() == 0 and latest else 0
    return int(hvd.broadcast_object(step, root_rank=0))


def run(options: argparse.Namespace) -> None:
    report = Report("MNIST in a TF1 session")
    checkpoints = usable_directory("--checkpoint-dir", options.checkpoint_dir)
    # Horovod: all ranks together make the steps that one process would make.
    last_step = max(options.steps // hvd.size(), 1)
    first_step = saved_step(checkpoints)
    if first_step >= last_step:
        report.say(
            f"{checkpoints} is at step {first_step} already: ask for more than "
            f"--steps {first_step * hvd.size()}, or remove it to start anew"
        )
        return
    digits = load_digits(options.data_dir, options.limit)
    report.say(digits.source)
    # Horovod: the digits are split by rank.
    x, y = as_floats(digits.x_train)[hvd.rank() :: hvd.size()], digits.y_train[hvd.rank() :: hvd.size()]
    if len(x) == 0:
        sys.exit(f"{len(digits.x_train)} digits are too few for {hvd.size()} processes: raise --limit")

    images = tf.placeholder(tf.float32, [None, 28, 28, 1], "images")
    labels = tf.placeholder(tf.int32, [None], "labels")
    loss, accuracy = build_model(images, labels)
    global_step = tf.train.get_or_create_global_step()
    # Horovod: all ranks together see a larger batch, which allows for larger steps.
    opt = tf.train.AdamOptimizer(options.lr * hvd.size())
    # Horovod: gradients are averaged over the ranks.
    opt = hvd.DistributedOptimizer(opt)
    train_op = opt.minimize(loss, global_step=global_step)
    with tf.control_dependencies([train_op]):
        steps_done = global_step.read_value()
    final = LastValues(
        {"accuracy": accuracy, "weights": tf.trainable_variables()},
        {images: as_floats(digits.x_test), labels: digits.y_test},
    )
    hooks = [
        # Horovod: all ranks start with rank 0's values, be they new or from its checkpoint.
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(last_step=last_step),
        tf.train.LoggingTensorHook({"step": steps_done, "loss": loss}, every_n_iter=options.log_every),
        final,
    ]
    config = tf.ConfigProto(
        intra_op_parallelism_threads=int(os.environ["OMP_NUM_THREADS"]), inter_op_parallelism_threads=2
    )
    # Horovod: one GPU for each rank of a host, and only one rank writes files.
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    checkpoint_dir = options.checkpoint_dir if hvd.rank() == 0 else None
    feed = batches(x, y, options.batch_size, options.seed + first_step)
    with (
        tf.train.MonitoredTrainingSession(
            checkpoint_dir=checkpoint_dir,
            save_checkpoint_steps=options.save_every,
            save_checkpoint_secs=None,
            log_step_count_steps=options.log_every,
            config=config,
            hooks=hooks,
        ) as session,
        report.bar("Steps", last_step - first_step) as advance,
    ):
        while not session.should_stop():
            some_images, some_labels = next(feed)
            session.run(train_op, {images: some_images, labels: some_labels})
            advance()
    agreed = same_on_all_ranks(final.values["weights"])
    report.say(f"Test accuracy {final.values['accuracy']:.2%}, weights {agreed} on all ranks")


def parse() -> argparse.Namespace:
    parser = training_parser("MNIST in a TF1 session", batch_size=100)
    parser.add_argument("--steps", type=at_least_one, default=1000, help="of all processes together")
    add_checkpoint_dir(parser, "./checkpoints")
    parser.add_argument("--save-every", type=at_least_one, default=200, help="steps between checkpoints")
    parser.add_argument("--log-every", type=at_least_one, default=100, help="steps between two lines")
    return parser.parse_args()


def main() -> None:
    """Entry point."""
    options = parse()
    began = time.perf_counter()
    tf.logging.set_verbosity(tf.logging.INFO)
    # Horovod: who am I, and who are the others.
    hvd.init()
    with told_errors(tf.errors.OpError), tf.Graph().as_default():
        tf.set_random_seed(options.seed + hvd.rank())
        run(options)
    if hvd.rank() == 0:
        print("============================")
        print("Number of tasks: ", hvd.size())
        print(f"Total time is: {time.perf_counter() - began:g}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
