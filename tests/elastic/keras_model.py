"""The model of the training programs that have one of Keras."""

from __future__ import annotations

from typing import Any

import keras


def small_model(start_rank: int) -> Any:
    """Different on each rank: only sync() makes them the same."""
    keras.utils.set_random_seed(1234 + start_rank)
    return keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    )
