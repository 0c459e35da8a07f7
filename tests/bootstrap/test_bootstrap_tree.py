"""The tree of control connections: who is above whom."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from horovod._bootstrap.world.tree import FAN_OUT, neighbours_of, parents_of


def test_on_one_host_rank_0_is_above_all_unless_they_are_many() -> None:
    assert parents_of([0]) == [0]
    assert parents_of([0] * (FAN_OUT + 1)) == [0] * (FAN_OUT + 1)
    assert parents_of([0] * 9, fan_out=4) == [0, 0, 1, 0, 3, 3, 0, 6, 6]


def test_128_ranks_on_one_host_take_two_steps_with_twelve_below_each_at_most() -> None:
    parents = parents_of([0] * 128)
    assert all(parents[parents[rank]] == 0 for rank in range(128))
    assert max(Counter(parents[1:]).values()) == 12


def test_leaders_are_the_first_ranks_of_their_hosts() -> None:
    assert parents_of([0, 0, 1, 1, 2, 2]) == [0, 0, 0, 2, 0, 4]
    assert parents_of([0, 1, 0, 1, 2, 2]) == [0, 0, 0, 1, 0, 4]


def test_neighbours_are_above_and_below() -> None:
    parents = [0, 0, 0, 2, 0, 4]
    assert [neighbours_of(rank, parents) for rank in range(6)] == [[1, 2, 4], [0], [0, 3], [2], [0, 5], [4]]


def test_leaders_form_a_tree() -> None:
    assert parents_of(list(range(7)), fan_out=2) == [0, 0, 0, 1, 1, 2, 2]
    assert parents_of(list(range(4)), fan_out=1) == [0, 0, 1, 2]


@pytest.mark.parametrize("fan_out", [1, 2, 3])
@pytest.mark.parametrize("size", range(1, 7))
def test_every_layout_is_a_tree_with_few_below_each(size: int, fan_out: int) -> None:
    for layout in itertools.product(range(4), repeat=size):
        parents = parents_of(layout, fan_out)
        assert parents[0] == 0
        assert all(parent < rank for rank, parent in enumerate(parents[1:], 1))
        elsewhere = Counter(parents[rank] for rank in range(1, size) if layout[rank] != layout[parents[rank]])
        assert all(count <= fan_out for count in elsewhere.values())
        together = Counter(parents[rank] for rank in range(1, size) if layout[rank] == layout[parents[rank]])
        assert all(count <= fan_out for count in together.values())
        # Between hosts only leaders talk.
        first = {host: layout.index(host) for host in layout}
        for rank in range(size):
            if layout[parents[rank]] != layout[rank]:
                assert rank == first[layout[rank]] and parents[rank] == first[layout[parents[rank]]]


def test_four_thousand_hosts_take_three_steps() -> None:
    parents = parents_of([host for host in range(4096) for _ in range(8)])
    steps = 0
    for rank in range(len(parents)):
        above, count = rank, 0
        while above:
            above, count = parents[above], count + 1
        steps = max(steps, count)
    assert steps <= 4 and max(Counter(parents[1:]).values()) <= FAN_OUT + 7
