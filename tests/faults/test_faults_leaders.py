"""Votes go through the leaders of hosts: who died, and who is waited for, is told as ever."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from util_launch import launch

PROGRAM = Path(__file__).with_name("program_leaders.py")
# Rank 2 is below rank 0 and above 3 and 4, which is above 5.
SETTINGS = {"HOROVOD_TOPOLOGY": "2,2,2"}
ONE_HOST: dict[str, str] = {}  # each rank is below the one before it


@pytest.mark.parametrize(
    ("victim", "settings"), [(2, SETTINGS), (4, SETTINGS), (5, SETTINGS), (2, ONE_HOST), (5, ONE_HOST)]
)
def test_all_name_the_rank_that_died(victim: int, settings: dict[str, str]) -> None:
    outcome = launch(6, PROGRAM, f"kill:{victim}", **settings)
    for rank in range(6):
        if rank != victim:
            said = rf"rank {rank} says: rank {victim} \(host [^)]*\) was killed by signal 9"
            assert re.search(said, outcome.output), outcome.output


@pytest.mark.parametrize(("late", "settings"), [(2, SETTINGS), (3, SETTINGS), (3, ONE_HOST)])
def test_a_stall_names_those_who_are_missing_and_no_others(late: int, settings: dict[str, str]) -> None:
    outcome = launch(6, PROGRAM, f"late:{late}", HOROVOD_STALL_CHECK_TIME_SECONDS="1", **settings)
    assert outcome.code == 0 and outcome.output.count("has ended") == 6, outcome.output
    ready = {2: "0, 1, 3-5", 3: "0-2, 4, 5"}[late]
    waited = rf"last has waited [12]\.\d s for rank {late} \(host [^)]*\); ready: {ready}\."
    assert re.search(waited, outcome.output), outcome.output
    if settings is SETTINGS:  # on one host small operations need no message
        assert "sent 2\n" in outcome.output, outcome.output  # of five other ranks
