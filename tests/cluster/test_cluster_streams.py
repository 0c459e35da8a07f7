"""Several connections between two hosts are as fast as that where one alone can't fill the link."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_hosts import Hosts
from cluster_job import horovodrun

TRAFFIC = Path(__file__).with_name("cluster_traffic.py")
CONNECTION = 200_000_000 // 8  # bytes a second of one, of a link with five times as much


@pytest.fixture
def limited(hosts: Hosts) -> Iterator[Hosts]:
    hosts.limit("1gbit")
    yield hosts
    hosts.unlimit()


def seconds(hosts: Hosts, streams: int, *rate: str, encryption: str = "none") -> float:
    """Of the quickest of some allreduces: others may have had to wait for a processor."""
    words = [sys.executable, TRAFFIC, "eth0", str(16 << 20), "5", *rate]
    env = {"HOROVOD_STREAMS_PER_PEER": str(streams), "HOROVOD_ENCRYPTION": encryption}
    done = horovodrun(hosts, "-np", "2", "-H", "host1,host2", *words, env=env)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if "measured " in line)
    return float(min(json.loads(line.partition("measured ")[2])["seconds"]))


@pytest.mark.parametrize("encryption", ["none", "data"])
def test_where_each_connection_has_a_limit(encryption: str, limited: Hosts) -> None:
    one, four = (seconds(limited, streams, str(CONNECTION), encryption=encryption) for streams in (1, 4))
    assert one > 0.95 * (16 << 20) / CONNECTION  # the limit is one
    assert four < one / 2.5


def test_one_connection_that_fills_the_link_is_enough(limited: Hosts) -> None:
    assert seconds(limited, 1) < 1.15 * seconds(limited, 4)
