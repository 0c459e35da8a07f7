"""HOROVOD_METRICS_ADDRESS: rank 0 serves its metrics where horovodrun does not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from horovod.common.metrics_door import place_of

PROGRAM = """
import glob, http.client, os, stat, sys
import numpy as np
import horovod.numpy as hvd

def ask(port, token):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/metrics", headers={"Authorization": "Bearer " + token})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()

for world in range(2):  # the address is free again after a world, also if a child lives on
    hvd.init()
    hvd.allreduce(np.ones(1000, np.float32), name="x")
    hvd.mark_step()
    (file,) = glob.glob(os.environ["XDG_STATE_HOME"] + "/horovod/metrics/*.token")
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(file)).st_mode) == 0o700
    port = int(file.rpartition("-")[2].partition(".")[0])
    assert ask(port, "wrong")[0] == 401 and ask(port, "")[0] == 401
    status, text = ask(port, open(file).read())
    assert status == 200
    print(text, end="WORLD\\n")
    if world == 0:
        end, start = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(start)
            os.read(end, 1)
            os._exit(0)
    hvd.shutdown()
    assert not os.path.exists(file)
os.close(start)
os.waitpid(child, 0)
"""


def run(directory: Path, address: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOROVOD_METRICS_ADDRESS": address, "XDG_STATE_HOME": str(directory)}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=env, text=True, capture_output=True, timeout=100)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def counters(text: str) -> dict[tuple[object, ...], float]:
    """Each of them, by its name and labels; also what histograms count."""
    found = {}
    for family in text_string_to_metric_families(text):
        if family.type in ("counter", "histogram"):
            for sample in family.samples:
                found[(sample.name, *sorted(sample.labels.items()))] = sample.value
    return found


def test_rank_0_serves_its_metrics(tmp_path: Path) -> None:
    port = free_port()
    result = run(tmp_path, f"127.0.0.1:{port}")
    assert result.returncode == 0, result.stderr
    first, second, _ = result.stdout.split("WORLD\n")
    before, now = counters(first), counters(second)
    assert len(before) > 50 and [each for each in before if now[each] < before[each]] == []
    assert [value for key, value in before.items() if key[0] == "horovod_steps_total"] == [1]
    families = {f.name: f for f in text_string_to_metric_families(second)}
    (steps,) = families["horovod_steps"].samples
    assert steps.value == 2 and steps.labels["rank"] == "0"
    kinds = {sample.labels["kind"]: sample.value for sample in families["horovod_operations"].samples}
    assert kinds["allreduce"] == 2  # one of each world: counters do not fall
    (info,) = families["horovod_info"].samples
    assert info.labels["size"] == "1" and info.labels["transport"] == "single"
    assert f"metrics: http://127.0.0.1:{port}/metrics, with the bearer token in {tmp_path}" in result.stderr
    assert "warning" not in result.stderr


def test_an_address_that_others_reach_is_warned_of(tmp_path: Path) -> None:
    result = run(tmp_path, "0.0.0.0:0")
    assert result.returncode == 0, result.stderr
    assert "warning: others on the network can reach the metrics" in result.stderr


def test_an_address_that_is_taken_costs_a_message(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        env = {**os.environ, "HOROVOD_METRICS_ADDRESS": address, "XDG_STATE_HOME": str(tmp_path)}
        program = "import horovod.numpy as hvd; hvd.init(); print(hvd.size())"
        command = [sys.executable, "-c", program]
        result = subprocess.run(command, env=env, text=True, capture_output=True, timeout=100)
    assert result.returncode == 0 and result.stdout == "1\n"
    assert f"no metrics at HOROVOD_METRICS_ADDRESS={address}: Address already in use" in result.stderr


@pytest.mark.parametrize("text", ["9400", "localhost:9400", "127.0.0.1:", "127.0.0.1:70000", ""])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="HOROVOD_METRICS_ADDRESS"):
        place_of(text)
