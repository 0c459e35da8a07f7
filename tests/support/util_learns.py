"""A program of examples/ on two processes: it learns, and they end with the same weights."""

from __future__ import annotations

from util_launch import launch
from util_paths import ROOT


def assert_learns(program: str, **environment: str) -> None:
    """`program` is a path within examples/."""
    words = ("--epochs=2", "--limit=1000", "--batch-size=32", "--lr=0.002")
    outcome = launch(2, ROOT / "examples" / program, *words, timeout=120, **environment)
    assert outcome.code == 0, outcome.output
    lines = [line for line in outcome.output.splitlines() if "Epoch" in line and "test loss" in line]
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in lines]
    assert len(losses) == 2 and losses[1] < 0.9 * losses[0], outcome.output
    assert "the same bits on both ranks" in outcome.output
    assert "[1]<stdout>:Epoch" not in outcome.output
