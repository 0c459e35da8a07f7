"""Jobs over several hosts that go well."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cluster_hosts import Hosts
from cluster_job import RANK, horovodrun


def test_three_hosts(hosts: Hosts) -> None:
    result = horovodrun(hosts, "-np", "6", "-H", "host1:2,host2:2,host3:2", sys.executable, RANK, "sum")
    assert result.returncode == 0
    for rank in range(6):
        host = rank // 2 + 1
        place = f"{rank}/6 {rank % 2}/2 {rank // 2}/3 on host{host} host{host} 192.0.2.{host}"
        assert f"[{rank}]<stdout>:ok {place}\n" in result.stdout
