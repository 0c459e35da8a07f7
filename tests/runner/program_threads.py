"""Prints how many threads PyTorch, TensorFlow and JAX start for a product of matrices."""

from __future__ import annotations

import os

import numpy as np

SQUARE = np.ones((999, 999), np.float32)


def with_torch() -> None:
    import torch

    torch.from_numpy(SQUARE) @ torch.from_numpy(SQUARE)


def with_tensorflow() -> None:
    import tensorflow as tf

    tf.linalg.matmul(SQUARE, SQUARE)


def with_jax() -> None:
    import jax.numpy as jnp

    (jnp.asarray(SQUARE) @ jnp.asarray(SQUARE)).block_until_ready()


def main() -> None:
    counts = []
    for multiply in (with_torch, with_tensorflow, with_jax):
        before = len(os.listdir("/proc/self/task"))
        multiply()
        counts.append(len(os.listdir("/proc/self/task")) - before)
    print("threads", *counts, flush=True)


main()
