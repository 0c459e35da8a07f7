"""Host lists and rank assignment: pure functions."""

from __future__ import annotations

import pytest

from horovod.runner.plan.hosts import HostInfo, assign_ranks, parse_hostfile, parse_hosts


def test_one_host() -> None:
    assert HostInfo.from_string("a:2") == HostInfo("a", 2)
    with pytest.raises(ValueError, match="'a:1,b:2' is not one host"):
        HostInfo.from_string("a:1,b:2")


def test_host_list() -> None:
    assert parse_hosts("a:1, b-2.x_y:16 ") == [HostInfo("a", 1), HostInfo("b-2.x_y", 16)]
    assert parse_hosts("host1,host2:3") == [HostInfo("host1", 1), HostInfo("host2", 3)]
    assert parse_hosts("[2001:db8::1]:2,[::1]") == [HostInfo("2001:db8::1", 2), HostInfo("::1", 1)]


@pytest.mark.parametrize(
    "text",
    ["", "-a:1", "[a", "[x]:1", "a:", ":2", "a:2,", "a:-1", "a:x", "a b:2", "::1:2", "a:2:3", "a:0", "a:²"],
)
def test_bad_host_list_names_the_entry(text: str) -> None:
    with pytest.raises(ValueError, match="host entry"):
        parse_hosts(text)


def test_users_and_interpreters() -> None:
    assert parse_hosts("me@a:2,you@[::1]:3") == [HostInfo("me@a", 2), HostInfo("you@::1", 3)]
    text = "me@a slots=2 python=/opt/x/bin/python\nb:3 python = /p\nme@::1 slots=4\nc python=/q  # here\n"
    assert parse_hostfile(text) == [
        HostInfo("me@a", 2, "/opt/x/bin/python"),
        HostInfo("b", 3, "/p"),
        HostInfo("me@::1", 4),
        HostInfo("c", 1, "/q"),
    ]
    for bad in ("@a", "-o@a", "me@", "me@you@a", "me@-a"):
        with pytest.raises(ValueError, match="host entry"):
            parse_hosts(bad)
    with pytest.raises(ValueError, match="python=/path/of/python"):
        parse_hostfile("a python=relative")


def test_duplicate_host_takes_the_later_slots() -> None:
    assert parse_hosts("a:1,b:2,a:3") == [HostInfo("a", 3), HostInfo("b", 2)]


def test_hostfile() -> None:
    text = "# cluster\n\n  node1 slots=4   # first\n\tnode2:2\nnode3\nnode4 slots = 8\r\n"
    text += "2001:db8::5 slots=2\n2001:db8::6\n[2001:db8::7]:3\n"
    assert parse_hostfile(text) == [
        HostInfo("node1", 4),
        HostInfo("node2", 2),
        HostInfo("node3", 1),
        HostInfo("node4", 8),
        HostInfo("2001:db8::5", 2),
        HostInfo("2001:db8::6", 1),
        HostInfo("2001:db8::7", 3),
    ]


@pytest.mark.parametrize(
    "line", ["a slots", "a slots=x", "a b", "a slots=2 max=3", "a;b slots=1", "a slots=0"]
)
def test_bad_hostfile_names_file_and_line(line: str) -> None:
    with pytest.raises(ValueError, match=r"myfile, line 2: "):
        parse_hostfile(f"ok slots=1\n{line}\n", "myfile")


def test_empty_hostfile() -> None:
    with pytest.raises(ValueError, match="names no host"):
        parse_hostfile("# nothing\n")


def test_ranks_fill_hosts_in_order() -> None:
    slots = assign_ranks([HostInfo("a", 2), HostInfo("b", 3), HostInfo("c", 1)], 6)
    table = [(s.hostname, s.rank, s.local_rank, s.local_size, s.cross_rank, s.cross_size) for s in slots]
    assert table == [
        ("a", 0, 0, 2, 0, 3),
        ("a", 1, 1, 2, 0, 2),
        ("b", 2, 0, 3, 1, 3),
        ("b", 3, 1, 3, 1, 2),
        ("b", 4, 2, 3, 0, 1),
        ("c", 5, 0, 1, 2, 3),
    ]
    assert {s.size for s in slots} == {6}


def test_exactly_as_many_as_asked_for() -> None:
    slots = assign_ranks([HostInfo("a", 4), HostInfo("b", 4)], 2)
    assert [(s.hostname, s.local_size, s.cross_size) for s in slots] == [("a", 2, 1), ("a", 2, 1)]


def test_too_few_slots() -> None:
    with pytest.raises(ValueError, match="3 processes were requested but the hosts have 2 slots"):
        assign_ranks([HostInfo("a", 2)], 3)


def test_environment_of_a_slot() -> None:
    assert assign_ranks([HostInfo("a", 1)], 1)[0].environment() == {
        "HOROVOD_HOSTNAME": "a",
        "HOROVOD_RANK": "0",
        "HOROVOD_SIZE": "1",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": "0",
        "HOROVOD_CROSS_SIZE": "1",
    }
