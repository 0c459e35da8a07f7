"""A rank that dies while a process set is connected, which happens after the start."""

from __future__ import annotations

from pathlib import Path

from util_launch import launch

PROGRAM = Path(__file__).with_name("program_connecting.py")


def test_all_ranks_hear_of_a_death_while_a_set_is_connected() -> None:
    outcome = launch(4, PROGRAM, timeout=60, HOROVOD_TOPOLOGY="2,2")
    assert outcome.code != 0
    assert outcome.output.count("raised rank 3") == 3, outcome.output
