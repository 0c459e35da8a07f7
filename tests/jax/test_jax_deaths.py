"""A rank dies while a program of the others is under way: within a second they know, or are gone."""

import re
from pathlib import Path

import pytest
from util_launch import launch
from util_packages import needs

needs("jax")

PROGRAM = Path(__file__).with_name("program_dies_later.py")


@pytest.mark.parametrize(("where", "what"), [("later", "heard of it"), ("exit", "is gone")])
def test_within_a_second(where: str, what: str) -> None:
    outcome = launch(3, PROGRAM, where, timeout=60)
    assert outcome.code != 0 and "rank 1 on localhost failed first" in outcome.output, outcome.output
    said = re.findall(r"rank (\d) (.+) at ([\d.]+) s", outcome.output)
    times = {(int(rank), words): float(seconds) for rank, words, seconds in said}
    for rank in (0, 2):
        # The call had returned by then: else it would have raised the error.
        assert times[rank, "goes on"] < times[1, "dies"], outcome.output
        assert times[rank, what] - times[1, "dies"] < 1.0, outcome.output
