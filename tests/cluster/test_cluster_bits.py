"""Several hosts, and one host told to group its ranks alike, give the same bits: the promised ones."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from cluster_hosts import Hosts
from cluster_job import RANK, horovodrun

PYTHON = sys.executable
TRAFFIC = Path(__file__).with_name("cluster_traffic.py")


def digest(hosts: Hosts, *where: str | Path, topology: str = "") -> str:
    env = {"HOROVOD_TOPOLOGY": topology}
    result = horovodrun(hosts, "-np", "6", *where, PYTHON, RANK, "train", env=env)
    assert result.returncode == 0
    (found,) = re.findall(r"digest (\w+)", result.stdout)
    return str(found)


def test_training_on_three_hosts_and_on_one(hosts: Hosts, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("host1 slots=2\nhost2 slots=2\nhost3 slots=2\n")
    three = digest(hosts, "-H", "host1:2,host2:2,host3:2")
    assert digest(hosts, "--hostfile", file, topology="2,2,2") == three
    assert digest(hosts, topology="2,2,2") == three
    assert digest(hosts, topology="3,3") != three  # the setting is what makes them equal


def test_a_group_cannot_be_spread_over_hosts(hosts: Hosts) -> None:
    env = {"HOROVOD_TOPOLOGY": "3,1"}
    result = horovodrun(hosts, "-np", "4", "-H", "host1:2,host2:2", PYTHON, RANK, "train", env=env)
    assert result.returncode == 1
    assert "puts rank 0 (host host1, pid " in result.stderr
    assert ") and rank 2 (host host2, pid " in result.stderr and ") into one group" in result.stderr


def test_each_byte_crosses_the_network_once(hosts: Hosts) -> None:
    """An allreduce of S bytes over h hosts sends 2 (h - 1) / h S from each, however many ranks it has."""
    size = 16 << 20
    for ranks, where in ((4, "host1:2,host2:2"), (3, "host1,host2,host3")):
        result = horovodrun(hosts, "-np", str(ranks), "-H", where, PYTHON, TRAFFIC, "eth0", str(size), "2")
        assert result.returncode == 0
        line = next(line for line in result.stdout.splitlines() if "measured " in line)
        count = len(where.split(","))
        expected = 2 * (count - 1) / count * size
        for each in json.loads(line.partition("measured ")[2])["sent"]:
            assert len(each) == count
            for host, moved in each.items():
                assert 1.0 <= moved / expected < 1.05, f"{host} has sent {moved} bytes, not {expected}"
