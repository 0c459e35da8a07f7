"""One thread for TensorFlow's ops, which none of ours may block; and the older Keras."""

import os

import tensorflow as tf

assert os.environ["TF_USE_LEGACY_KERAS"] == "1"
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)
