"""Slurm's short forms."""

from __future__ import annotations

import pytest

from horovod._bootstrap.identity.slurm_lists import expand_counts, expand_nodes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", "node1"),
        ("node[1-3,7]", "node1 node2 node3 node7"),
        ("node[08-10]", "node08 node09 node10"),
        ("a,b[1-2]-ib,c", "a b1-ib b2-ib c"),
        ("rack[0-1]node[1-2]", "rack0node1 rack0node2 rack1node1 rack1node2"),
        ("[1-2]", "1 2"),
        ("host-1.example.org", "host-1.example.org"),
    ],
)
def test_nodes(text: str, names: str) -> None:
    assert expand_nodes(text) == names.split()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,",
        "node[1",
        "node1]",
        "node[]",
        "node[3-1]",
        "node[a]",
        "node[1-]",
        "a[[1]]",
        "n[0-9999999]",
        "a[0-65535]b[0-65535]",
    ],
)
def test_no_nodes(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|stands for"):
        expand_nodes(text)


def test_counts() -> None:
    assert expand_counts("2(x3),1") == [2, 2, 2, 1]
    assert expand_counts("4") == [4]


@pytest.mark.parametrize("text", ["", "2x3", "2(x)", "-1", "2,,1", "1(x99999999)"])
def test_no_counts(text: str) -> None:
    with pytest.raises(ValueError, match="is not a list of counts"):
        expand_counts(text)
