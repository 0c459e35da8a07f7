"""Residual networks: ResNet-50 v1.5 for photographs, narrow ones for small images."""

from __future__ import annotations

from typing import Any

import keras

MOMENTUM = 0.9
EPSILON = 1e-5


def _conv(inputs: Any, filters: int, size: int, stride: int = 1) -> Any:
    """Padding depends on the kernel only, so that every pixel is treated alike whatever the image's size."""
    if size > 1:
        inputs = keras.layers.ZeroPadding2D(size // 2)(inputs)
    layer = keras.layers.Conv2D(filters, size, stride, use_bias=False, kernel_initializer="he_normal")
    return layer(inputs)


def _norm(inputs: Any, relu: bool = True, gamma: str = "ones") -> Any:
    layer = keras.layers.BatchNormalization(momentum=MOMENTUM, epsilon=EPSILON, gamma_initializer=gamma)
    outputs = layer(inputs)
    return keras.layers.ReLU()(outputs) if relu else outputs


def _join(inputs: Any, branch: Any, stride: int) -> Any:
    """The sum of a block's input and output."""
    filters = branch.shape[-1]
    if stride != 1 or inputs.shape[-1] != filters:
        inputs = _norm(_conv(inputs, filters, 1, stride), relu=False)
    return keras.layers.ReLU()(keras.layers.Add()([inputs, branch]))


def _bottleneck(inputs: Any, filters: int, stride: int) -> Any:
    hidden = _norm(_conv(inputs, filters, 1))
    hidden = _norm(_conv(hidden, filters, 3, stride))  # "v1.5": the 3x3 layer has the stride, not the first
    # The last scale is zero, so that at the beginning a block passes its input on.
    return _join(inputs, _norm(_conv(hidden, 4 * filters, 1), relu=False, gamma="zeros"), stride)


def _basic(inputs: Any, filters: int, stride: int) -> Any:
    hidden = _norm(_conv(inputs, filters, 3, stride))
    return _join(inputs, _norm(_conv(hidden, filters, 3), relu=False, gamma="zeros"), stride)


def build(name: str, classes: int, size: int) -> Any:
    """A Keras model from images (size x size x 3) to scores in float32."""
    inputs = keras.Input((size, size, 3))
    if name == "resnet50":
        hidden = _norm(_conv(inputs, 64, 7, 2))
        hidden = keras.layers.MaxPooling2D(3, 2)(keras.layers.ZeroPadding2D(1)(hidden))
        block, stages = _bottleneck, [(64, 3), (128, 4), (256, 6), (512, 3)]
    else:
        hidden = _norm(_conv(inputs, 16, 3))
        blocks = (int(name.removeprefix("resnet")) - 2) // 6
        block, stages = _basic, [(16, blocks), (32, blocks), (64, blocks)]
    for stage, (filters, blocks) in enumerate(stages):
        for number in range(blocks):
            hidden = block(hidden, filters, 2 if stage > 0 and number == 0 else 1)
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    initializer = keras.initializers.RandomNormal(stddev=0.01)
    scores = keras.layers.Dense(classes, kernel_initializer=initializer, dtype="float32")(hidden)
    return keras.Model(inputs, scores, name=name)
