"""Layers for the digits, in Keras."""

from __future__ import annotations

from typing import Any

import keras


def convolutions(*filters: int) -> list[Any]:
    """A convolution with so many filters for each number, each halving the image; then one row of it all."""
    layers: list[Any] = []
    for number in filters:
        layers += [keras.layers.Conv2D(number, 3, activation="relu"), keras.layers.MaxPooling2D()]
    return [*layers, keras.layers.Flatten()]
