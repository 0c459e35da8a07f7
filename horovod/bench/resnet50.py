"""The parameters of ResNet-50, whose 161 gradients of very different sizes are a typical training step."""

from __future__ import annotations

from math import prod
from typing import Any

from numpy.typing import NDArray

Parameters = list[tuple[str, tuple[int, ...]]]

_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width of the 3x3 convolution, number of blocks
_EXPANSION = 4  # a block's output is this much wider than its 3x3 convolution
_CLASSES = 1000


def _convolution(name: str, inputs: int, outputs: int, kernel: int) -> Parameters:
    return [(f"{name}.weight", (outputs, inputs, kernel, kernel))]


def _normalization(name: str, channels: int) -> Parameters:
    return [(f"{name}.weight", (channels,)), (f"{name}.bias", (channels,))]


def _bottleneck(name: str, inputs: int, width: int, *, project: bool) -> Parameters:
    outputs = width * _EXPANSION
    parameters = [
        *_convolution(f"{name}.conv1", inputs, width, 1),
        *_normalization(f"{name}.bn1", width),
        *_convolution(f"{name}.conv2", width, width, 3),
        *_normalization(f"{name}.bn2", width),
        *_convolution(f"{name}.conv3", width, outputs, 1),
        *_normalization(f"{name}.bn3", outputs),
    ]
    if project:
        parameters += _convolution(f"{name}.downsample.conv", inputs, outputs, 1)
        parameters += _normalization(f"{name}.downsample.bn", outputs)
    return parameters


def parameters() -> Parameters:
    """Names and shapes in the order of the forward pass: 161 tensors, 25,557,032 numbers."""
    found = [*_convolution("conv1", 3, 64, 7), *_normalization("bn1", 64)]
    inputs = 64
    for stage, (width, blocks) in enumerate(_STAGES, 1):
        for block in range(blocks):
            found += _bottleneck(f"layer{stage}.{block}", inputs, width, project=block == 0)
            inputs = width * _EXPANSION
    return [*found, ("fc.weight", (_CLASSES, inputs)), ("fc.bias", (_CLASSES,))]


def gradients() -> Parameters:
    """The same in the order in which a backward pass produces the gradients."""
    return parameters()[::-1]


def count(shapes: Parameters) -> int:
    """How many numbers they hold."""
    return sum(prod(shape) for _, shape in shapes)


def views(memory: NDArray[Any], shapes: Parameters) -> list[tuple[str, NDArray[Any]]]:
    """Named arrays of these shapes one after another in `memory`."""
    found, start = [], 0
    for name, shape in shapes:
        end = start + prod(shape)
        found.append((name, memory[start:end].reshape(shape)))
        start = end
    return found
