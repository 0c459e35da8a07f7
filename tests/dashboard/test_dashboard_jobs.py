"""What rank 0 tells while a job runs: figures, stacks, and lines of the event log."""

from __future__ import annotations

import argparse
import http.client
import json
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families
from runner_util import Launcher, horovodrun

from horovod._bootstrap.rendezvous.server import RendezvousServer
from horovod._figures.door import CLIENTS
from horovod.runner.cli.observing import TOKEN, Observer
from horovod.runner.launcher.event_log import EventLog
from horovod.runner.launcher.job_record import JobRecord

PROGRAM = """
import time
import numpy as np
import horovod.numpy as hvd

def wait_here():
    print("up", flush=True)
    while True:
        hvd.allreduce(np.ones(1000), name="x")
        hvd.mark_step()
        time.sleep(0.02)

hvd.init()
wait_here()
"""


# What users and their boards rely on.
NAMES = """
operations_total tensors_total bytes_total network_bytes_total blocked_seconds_total late_seconds_total
last_ready_total cache_hits_total cache_misses_total cache_evictions_total steps_total samples_total
stalls_total resets_total failures_total trace_dropped_total
operation_seconds negotiation_seconds queue_seconds step_seconds tensors_per_operation
up info pending_operations stalled_operations exposed_ratio bus_bytes_per_second peer_rtt_seconds
clock_offset_seconds cpu_ratio resident_bytes
"""


class Watched:
    """A training with a dashboard."""

    def __init__(self, directory: Path) -> None:
        (directory / "program.py").write_text(PROGRAM)
        self.env = {"XDG_STATE_HOME": str(directory / "state")}
        flags = ["-np", "2", "--dashboard", sys.executable, "program.py"]
        self.launcher = Launcher(*flags, cwd=directory, env=self.env)
        assert self.launcher.process.stderr is not None
        line = self.launcher.process.stderr.readline().decode()
        found = re.search(r"dashboard: (\S+)", line)
        assert found, line
        self.url = urlsplit(found[1])
        self.launcher.wait_for(2, "up")

    def get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection(self.url.netloc, timeout=20)
        connection.request("GET", self.url.path + path)
        return connection.getresponse().read()

    def wait_for(self, condition: Any, seconds: float = 40.0) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            snapshot: dict[str, Any] = json.loads(self.get("/state"))
            if condition(snapshot):
                return snapshot
            assert time.monotonic() < deadline, snapshot
            time.sleep(0.1)


def test_figures_stacks_and_the_end(tmp_path: Path) -> None:
    job = Watched(tmp_path)
    snapshot = job.wait_for(lambda s: s["rates"].get("steps_per_second", 0) > 1 and len(s["ranks"]) == 2)
    assert snapshot["job"]["transport"] == "shm"
    both = job.wait_for(lambda s: all((rank.get("memory") or 0) > 10**6 for rank in s["ranks"]))["ranks"]
    assert all(rank["state"] == "running" and rank["steps"] > 0 for rank in both)
    families = {f.name: f for f in text_string_to_metric_families(job.get("/metrics").decode())}
    assert all(sample.value > 0 for sample in families["horovod_steps"].samples)
    assert len(families["horovod_blocked_seconds"].samples) == 2
    told = {name for name, family in families.items() if family.samples}
    assert {f"horovod_{name.removesuffix('_total')}" for name in NAMES.split()} - told == set()
    for name in ("operation_seconds", "negotiation_seconds", "queue_seconds", "step_seconds"):
        (count,) = [s for s in families[f"horovod_{name}"].samples if s.name.endswith("_count")]
        assert count.value > 0 and count.labels["rank"] == "0", name
    # Ctrl-\ at the launcher, and the same from another shell.
    job.launcher.process.send_signal(signal.SIGQUIT)
    found = set()
    while found != {"0", "1"}:
        line = job.launcher.process.stderr.readline().decode()
        assert line, "it ended"
        if answer := re.search(r"rank (\d) \(localhost, pid \d+\):", line):
            assert "wait_here" in job.launcher.process.stderr.readline().decode()
            found.add(answer[1])
    assert job.launcher.process.poll() is None
    result = horovodrun("--stack-dump", env=job.env)
    assert result.returncode == 0, result.stderr
    for rank in (0, 1):
        assert re.search(rf"rank {rank} \(localhost, pid \d+\):\n.*program.py:\d+ wait_here", result.stdout)
    stacks = job.wait_for(lambda s: len(s["stacks"]) == 2)["stacks"]
    assert all("wait_here" in each["text"] for each in stacks)
    job.launcher.process.send_signal(signal.SIGTERM)
    finished = job.launcher.finish()
    assert finished.returncode == 143 and "wait_here" in finished.stderr
    (file,) = (tmp_path / "state").glob("horovod/jobs/*/events.jsonl")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    names = [event["event"] for event in events]
    assert names.index("world") < names.index("stacks") < names.index("signal") < names.index("job_end")
    assert events[-1]["steps"] > 0 and events[-1]["bytes"] > 0
    assert job.url.path.strip("/") not in file.read_text()  # the token


def test_clients_that_stand_still_do_not_delay_the_job(tmp_path: Path) -> None:
    job = Watched(tmp_path)
    still = []
    for _ in range(CLIENTS - 2):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)  # soon full
        client.connect((job.url.hostname, job.url.port))
        client.sendall(f"GET {job.url.path}/events HTTP/1.1\r\nHost: {job.url.netloc}\r\n\r\n".encode())
        still.append(client)
    before = job.wait_for(lambda s: all(rank.get("steps") for rank in s["ranks"]))
    steps = before["ranks"][0]["steps"]
    job.wait_for(lambda s: s["ranks"][0]["steps"] > steps + 50)
    job.launcher.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert job.launcher.finish().returncode == 143
    assert time.monotonic() - began < 20  # as without them, on a busy machine
    for client in still:
        client.close()


LATE = """
import time
import horovod.numpy as hvd

def late():
    time.sleep(4)

hvd.init()
hvd.barrier()
if hvd.rank() == 1:
    late()
hvd.barrier()
time.sleep(3)  # rank 0 looks twice a second
"""


def test_a_stall_is_in_the_log_and_in_the_report(tmp_path: Path) -> None:
    log, page = tmp_path / "events.jsonl", tmp_path / "report.html"
    flags = ["-np", "2", "--event-log", str(log), "--report", str(page)]
    env = {"XDG_STATE_HOME": str(tmp_path), "HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}
    result = horovodrun(*flags, sys.executable, "-c", LATE, env=env)
    assert result.returncode == 0, result.stderr
    events = [json.loads(line) for line in log.read_text().splitlines()]
    first = next(event for event in events if event["event"] == "stall")
    over = next(event for event in events if event["event"] == "stall_resolved")
    assert [missing["rank"] for missing in first["missing"]] == [1] and first["ready"] == [0]
    assert first["tensors"] == over["tensors"] and first["seconds"] >= 1
    assert "<string>:6 late <- <string>:11 <module>" in first["text"]
    assert events.index(first) < events.index(over) and "goes on" in over["text"]
    assert "goes on, after it had waited" in page.read_text()


# What the core tells of when it has lasted too long; here the program does.
TOLD = """
import time
import numpy as np
import horovod.numpy as hvd
from horovod.common import observer

hvd.init()
if hvd.rank() == 0:
    missing = [{"rank": 1, "host": "b", "pid": 7}]
    observer.tell({"event": "hang", "tensors": ["stuck"], "seconds": 61.0, "missing": missing, "ready": [0]})
    observer.tell({"event": "slow_rank", "rank": 1, "host": "b", "share": 0.9, "seconds_lost": 12.0})
    observer.tell({"event": "job_end", "code": 0})  # not a rank's to say
for _ in range(140):
    hvd.allreduce(np.ones(10), name="x")
    hvd.mark_step()
    time.sleep(0.1)
"""


def test_what_rank_0_tells_comes_into_the_log(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    flags = ["-np", "2", "--event-log", str(log), "--report", str(tmp_path / "report.html")]
    result = horovodrun(*flags, sys.executable, "-c", TOLD, env={"XDG_STATE_HOME": str(tmp_path)})
    assert result.returncode == 0, result.stderr
    events = [json.loads(line) for line in log.read_text().splitlines()]
    (hang,) = [event for event in events if event["event"] == "hang"]
    assert (hang["tensors"], hang["ready"], hang["missing"][0]["rank"]) == (["stuck"], [0], 1)
    (slow,) = [event for event in events if event["event"] == "slow_rank"]
    assert (slow["rank"], slow["host"], slow["share"], slow["seconds_lost"]) == (1, "b", 0.9, 12.0)
    steps = [event for event in events if event["event"] == "step"]
    assert 1 <= len(steps) <= 2 and 0 < steps[0]["steps"] < 140 and 0 < steps[0]["rate"] < 11
    assert [event["event"] for event in events].count("job_end") == 1


def test_a_report_that_cannot_be_written_costs_a_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, reason in ((tmp_path / "file/report.html", "File exists"), (tmp_path, "Is a directory")):
        result = horovodrun("-np", "1", "--report", str(path), "true", env={"XDG_STATE_HOME": str(tmp_path)})
        assert result.returncode == 0 and f"the report {path}: {reason}" in result.stderr, result.stderr


def test_an_address_that_others_reach_is_warned_of(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    for address, reached in (("0.0.0.0:0", True), ("127.0.0.2:0", False)):
        result = horovodrun("-np", "1", "--dashboard-address", address, "true", env=env)
        assert result.returncode == 0, result.stderr
        assert f"horovodrun: dashboard: http://{address.partition(':')[0]}:" in result.stderr
        assert ("warning: others on the network can reach the dashboard" in result.stderr) == reached
    result = horovodrun("-np", "1", "--dashboard-address", "nowhere", "true", env=env)
    assert result.returncode != 0 and "--dashboard-address" in result.stderr


def test_an_address_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for address in (f"127.0.0.1:{port}", "203.0.113.7:0"):  # the other one is nobody's
            result = horovodrun("-np", "1", "--dashboard-address", address, "true", env=env)
            assert result.returncode == 1 and f"--dashboard-address {address}: " in result.stderr, (
                result.stderr
            )
            assert "a port that is free" in result.stderr


def test_a_token_that_cannot_be_written_costs_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = JobRecord(EventLog(), environ={"XDG_STATE_HOME": str(tmp_path)}, keep=True)
    assert record.path is not None
    (record.path / TOKEN).mkdir()
    args = argparse.Namespace(report=None, dashboard=True, dashboard_address=None)
    observer = Observer(args, RendezvousServer(b"k" * 32), record)
    observer.close()
    assert f"{record.path / TOKEN}: File exists" in capsys.readouterr().err
    record.begin(np=1, hosts={"a": [0]}, command=["x"], settings={})
    assert '"dashboard": {"address": "127.0.0.1"' in (record.path / "job.json").read_text()
