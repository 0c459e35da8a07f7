"""Keras's fit() keeps the ranks alike to the last bit: program_long_fit.py, briefly and at length."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from util_launch import launch
from util_packages import needs

needs("keras")
if metadata.version("keras").startswith("2."):
    pytest.skip("for Keras 3", allow_module_level=True)

PROGRAM = Path(__file__).with_name("program_long_fit.py")


def same_bits(backend: str, ranks: int, steps: int, numbers: Iterable[int], timeout: float) -> None:
    needs(backend)
    chosen = list(map(str, numbers))
    words = ["--steps", str(steps), "--numbers", *chosen]
    outcome = launch(ranks, PROGRAM, *words, timeout=timeout, KERAS_BACKEND=backend)
    print(outcome.output)
    assert outcome.code == 0 and outcome.output.count("same bits") == len(chosen), outcome.output


# Half precision, accumulation, several steps at a time; compiled for TensorFlow only, as torch takes minutes.
@pytest.mark.parametrize(("backend", "numbers"), [("tensorflow", [0, 2, 16]), ("torch", [0, 2])])
def test_short(backend: str, numbers: list[int]) -> None:
    same_bits(backend, 2, 24, numbers, timeout=250)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_long(backend: str, ranks: int) -> None:
    # What the others do not happen to have. 2, 10, 34: sparse gradients in graphs; 77, 103: loss scaling
    # in eager execution.
    chosen = [2, 10, 34, 77, 103, *range(100 * ranks, 100 * ranks + 8)]
    same_bits(backend, ranks, 1000, chosen, timeout=3500)
