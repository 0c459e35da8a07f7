"""What the steps of the tutorial learn, and with what: the same in all of them."""

import keras
from sklearn.datasets import load_digits


def load():
    """Images and labels: those to learn from, and those to be tested on."""
    digits = load_digits()
    images, labels = digits.data / 16.0, digits.target
    return (images[:1400], labels[:1400]), (images[1400:], labels[1400:])


def build_model():
    return keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
