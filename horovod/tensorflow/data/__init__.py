"""Preprocessing on other machines than the training, with TensorFlow's tf.data service."""
