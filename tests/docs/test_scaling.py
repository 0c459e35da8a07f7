"""The simulator counts as real jobs do, and docs/scaling.md has what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import scaling  # noqa: E402
import scaling_chart  # noqa: E402


def _simulate(hosts: int, local: int) -> scaling.Figures:
    return scaling.simulated(hosts, local, tensors=20, **scaling.HERE)


@pytest.mark.parametrize(("hosts", "local"), [(1, 2), (3, 2)])
def test_messages_are_those_of_a_real_job(hosts: int, local: int) -> None:
    real, ours = scaling.real(hosts, local, blocking=20, steps=1), _simulate(hosts, local)
    assert real["first_messages"] == ours["first_messages_rank_0"]
    if hosts > 1:  # on one host small operations meet without the coordinator
        assert real["cached_messages"] == ours["cached_messages_rank_0"]


def test_same_world_gives_the_same_figures() -> None:
    first = _simulate(5, 3)
    scaling._simulated.cache_clear()
    assert _simulate(5, 3) == first


def test_rank_0_hears_few_of_many() -> None:
    assert [scaling.simulated(hosts, tensors=0)["cached_messages_rank_0"] for hosts in (2, 64)] == [16, 78]
    assert scaling.simulated(64, star=True, tensors=0)["cached_messages_rank_0"] == 2 * (64 * 8 - 1)


@pytest.mark.parametrize(("hosts", "messages"), [(2, 2), (16, 30)])
def test_large_ones_follow_the_real_plans(hosts: int, messages: int) -> None:
    """Each sends its contribution and its result to each other host; all bytes but its own share, twice."""
    figures = scaling.simulated(hosts, bytes=scaling.MIB)
    assert figures["messages"] == messages
    assert figures["bytes"] == pytest.approx(2 * scaling.MIB / 8 * (hosts - 1) / hosts, rel=0.01)


def test_many_hosts_overlap_as_few_do() -> None:
    """The bytes are the same, and rows have no longer messages than is needed."""
    times = [scaling.simulated(hosts, bytes=100 * scaling.MIB)["seconds"] for hosts in (16, 32, 256, 1024)]
    assert max(times) < 1.2 * times[0], times


@pytest.mark.parametrize("name", scaling.TABLES)
def test_tables_are_those_of_the_command(name: str) -> None:
    page = scaling.PAGE.read_text()
    part = page.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0].split()
    for row in scaling.rows(name, (2, 32)):
        line = scaling.table([], [row]).splitlines()[-1].split()
        text = " ".join(line)
        assert text in " ".join(part), f"make scaling writes another table '{name}'"


def test_curves_have_every_row() -> None:
    points = scaling_chart.points(scaling.PAGE.read_text())
    assert [point.ranks for point in points] == [hosts * scaling.LOCAL for hosts in scaling.HOSTS]
