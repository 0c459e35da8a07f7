"""TensorFlow with one thread for its ops, which none of ours may block; with the older Keras, too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import tensorflow as tf

assert os.environ["TF_USE_LEGACY_KERAS"] == "1"
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)
sys.path.insert(0, str(Path(__file__).parent))

from checks_documents import *  # noqa: E402, F403
from checks_layers import *  # noqa: E402, F403
from checks_tf1 import check_graph_collectives, check_session_equals_the_whole  # noqa: E402, F401
from checks_training import check_many_in_flight, check_partial_tape  # noqa: E402, F401


def check_older_keras() -> None:
    assert tf.keras.layers.Layer.__module__.startswith("tf_keras")
    assert tf.config.threading.get_inter_op_parallelism_threads() == 1
