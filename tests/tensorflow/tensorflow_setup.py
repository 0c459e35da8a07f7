"""Before all checks of TensorFlow."""

import tensorflow as tf

tf.get_logger().setLevel("ERROR")  # it does not like how often we trace
