"""All checks in one module: TensorFlow takes seconds to start, so one launch runs them all."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import tensorflow as tf

tf.get_logger().setLevel("ERROR")  # it does not like how often we trace

from checks_arguments import *  # noqa: E402, F403
from checks_collectives import *  # noqa: E402, F403
from checks_documents import *  # noqa: E402, F403
from checks_errors import *  # noqa: E402, F403
from checks_gradients import *  # noqa: E402, F403
from checks_layers import *  # noqa: E402, F403
from checks_tf1 import *  # noqa: E402, F403
from checks_training import *  # noqa: E402, F403
from checks_xla import *  # noqa: E402, F403
