"""The search for parameters over a slow network: it gains, or says that nothing is to be gained."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_hosts import Hosts
from cluster_job import horovodrun

PROGRAM = """
import hashlib, sys, time
import numpy as np
import horovod.numpy as hvd

hvd.init()
tensors = [np.random.default_rng(hvd.rank() * 10 + i).random(3000).astype(np.float32) for i in range(6)]
digest = hashlib.sha256()
begin = 0.0
for step in range(int(sys.argv[1])):
    if step == 410:
        begin = time.monotonic()
    handles = [hvd.allreduce_async(tensor, name=f"g{i}") for i, tensor in enumerate(tensors)]
    for handle in handles:
        digest.update(hvd.synchronize(handle).tobytes())
    hvd.mark_step()
if hvd.rank() == 0:
    print("step", (time.monotonic() - begin) / (int(sys.argv[1]) - 410), digest.hexdigest())
"""


@pytest.fixture
def limited(hosts: Hosts) -> Iterator[Hosts]:
    hosts.limit("100mbit")
    yield hosts
    hosts.unlimit()


def run(hosts: Hosts, where: str, *flags: str | Path) -> tuple[float, str, str]:
    """Seconds of a step after the search, a digest of all results, and what was said."""
    ranks = str(sum(int(host.partition(":")[2] or 1) for host in where.split(",")))
    words = ["-np", ranks, "-H", where, *flags, sys.executable, "-c", PROGRAM, "500"]
    done = horovodrun(hosts, *words, env={"HOROVOD_AUTOTUNE_PROFILE": "off"})
    assert done.returncode == 0
    (found,) = re.findall(r"step ([\d.]+) (\w+)", done.stdout)
    return float(found[0]), found[1], done.stderr


@pytest.mark.parametrize("where", ["host1,host2", "host1:2,host2:2"])
def test_a_slow_link(where: str, limited: Hosts, tmp_path: Path) -> None:
    before, digest, _ = run(limited, where)
    after, same, said = run(limited, where, "--autotune", "--autotune-log-file", tmp_path / "log.csv")
    assert re.search(r"autotune: (steps take \d+% less|nothing is to be gained)", said)
    assert len((tmp_path / "log.csv").read_text().splitlines()) > 2
    assert digest == same  # not a bit
    # One job after the other on a machine that does other things, too: only what is plainly worse counts.
    assert after < 1.5 * before
