"""The shortest TF1 program: Adagrad, hooks, a MonitoredTrainingSession, on any number of processes:

    horovodrun -np 2 python examples/tensorflow/tensorflow_mnist.py

What makes it distributed is marked with "Horovod:".
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow reads it

import numpy as np
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats, load_digits
from program import add_checkpoint_dir, at_least_one, told_errors, training_parser
from training_report import Report, processes, same_on_all_ranks, usable_directory


def run(options: argparse.Namespace) -> None:
    # Horovod: who am I, and who are the others.
    hvd.init()
    tf.set_random_seed(options.seed + hvd.rank())
    report = Report("MNIST with Adagrad")
    usable_directory("--checkpoint-dir", options.checkpoint_dir)
    digits = load_digits(options.data_dir, options.limit)
    report.say(f"{digits.source}; {processes()}")
    x, y = as_floats(digits.x_train).reshape(-1, 784), digits.y_train

    # Horovod: one GPU for each rank of a host.
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())

    images = tf.placeholder(tf.float32, [None, 784])
    labels = tf.placeholder(tf.int32, [None])
    hidden = tf.nn.relu(tf.matmul(images, tf.get_variable("w1", [784, 100])))
    logits = tf.matmul(hidden, tf.get_variable("w2", [100, 10]))
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)

    opt = tf.train.AdagradOptimizer(options.lr * hvd.size())
    # Horovod: gradients are averaged over the ranks.
    opt = hvd.DistributedOptimizer(opt)
    train_op = opt.minimize(loss, global_step=tf.train.get_or_create_global_step())
    # Horovod: all ranks start with rank 0's values. Together they make the steps of one process.
    steps = max(options.steps // hvd.size(), 1)
    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(num_steps=steps)]
    # Horovod: only one rank writes files. The session restores its last checkpoint.
    checkpoint_dir = options.checkpoint_dir if hvd.rank() == 0 else None
    # Horovod: each rank draws other digits.
    generator = np.random.default_rng([options.seed, hvd.rank()])
    losses, weights = [], []
    with (
        tf.train.MonitoredTrainingSession(
            checkpoint_dir=checkpoint_dir, config=config, hooks=hooks
        ) as mon_sess,
        report.bar("Steps", steps) as advance,
    ):
        while not mon_sess.should_stop():
            chosen = generator.integers(len(x), size=options.batch_size)
            feed = {images: x[chosen], labels: y[chosen]}
            _, now, weights = mon_sess.run([train_op, loss, tf.trainable_variables()], feed)
            losses.append(float(now))
            advance()
    few = max(len(losses) // 10, 1)
    report.say(f"Loss {np.mean(losses[:few]):.4f} at first, {np.mean(losses[-few:]):.4f} at last")
    report.say(f"Weights {same_on_all_ranks(weights)} on all ranks, checkpoints in {options.checkpoint_dir}")
    hvd.shutdown()


def parse() -> argparse.Namespace:
    parser = training_parser("MNIST with Adagrad in a TF1 session", batch_size=100, lr=0.01)
    parser.add_argument("--steps", type=at_least_one, default=2000, help="of all processes together")
    logs = os.path.join(tempfile.gettempdir(), "train_logs")
    add_checkpoint_dir(parser, logs, "rank 0 saves there; an older run there is continued")
    return parser.parse_args()


if __name__ == "__main__":
    with told_errors(tf.errors.OpError), tf.Graph().as_default():
        run(parse())
