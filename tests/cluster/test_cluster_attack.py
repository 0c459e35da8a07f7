"""Someone on the same network attacks a running job: it finishes, and nothing of theirs is executed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from cluster_attacker import listening
from cluster_hosts import Hosts
from cluster_job import ClusterJob
from util_paths import ROOT

ATTACKER = Path(__file__).with_name("cluster_attacker.py")
SECONDS = 5
# Worlds are built again and again, so that there are doors to attack, until the file argv[1] is there.
JOB = """
import sys, numpy as np, horovod.numpy as hvd, os
rounds = 0
print("pid", os.getpid(), flush=True)
while True:
    hvd.init()
    total = hvd.allreduce(np.full(1000, hvd.rank() + 1.0), op=hvd.Sum, name="x")
    assert (total == 10).all()
    # All ranks must agree on when it is over.
    over = hvd.broadcast(np.array([os.path.exists(sys.argv[1])]), 0, name="over")[0]
    hvd.shutdown()
    rounds += 1
    if over: break
print("finished", rounds, flush=True)
"""


def recorded_handshake(hosts: Hosts, key: bytes, endpoint: tuple[str, int]) -> bytes:
    """What an honest worker sends; the attacker is assumed to have overheard it."""
    code = (
        "import socket, sys, time\n"
        "from horovod._net.handshake import Initiator\n"
        "side = Initiator(bytes.fromhex(sys.stdin.read()), 'rendezvous')\n"
        "sock = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10)\n"
        "answer = side.receive(sock.recv(side.wanted, socket.MSG_WAITALL))\n"
        "sock.sendall(answer)\n"
        "side.receive(sock.recv(side.wanted, socket.MSG_WAITALL))\n"  # it was accepted, this once
        "print(answer.hex())\n"
    )
    words = hosts.words(3, sys.executable, "-c", code, endpoint[0], str(endpoint[1]))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, input=key.hex(), env=env, capture_output=True, text=True, timeout=60, check=True
    )
    return bytes.fromhex(done.stdout)


def test_attack(hosts: Hosts, tmp_path: Path) -> None:
    marker, over = tmp_path / "executed", tmp_path / "over"
    job = ClusterJob(hosts, "-np", "4", "-H", "host1:2,host2:2", sys.executable, "-c", JOB, over)
    lines = job.lines_until(4, "pid ")
    pids = {int(line[1]): int(line.split()[-1]) for line in lines if "pid " in line}
    key = bytes.fromhex(variable(pids[0], "_HOROVOD_SECRET_KEY"))
    door = ("192.0.2.1", int(variable(pids[0], "HOROVOD_GLOO_RENDEZVOUS_PORT")))
    assert door in listening(job.process.pid, "192.0.2.1")
    check_that_only_chosen_addresses_are_open(job.process.pid)
    recorded = recorded_handshake(hosts, key, door)
    victims = [f"{job.process.pid}@192.0.2.1", f"{pids[2]}@192.0.2.2"]
    words = hosts.words(3, sys.executable, ATTACKER, str(SECONDS), str(marker), recorded.hex(), *victims)
    attack = subprocess.run(words, capture_output=True, text=True, timeout=100)
    over.touch()
    assert attack.returncode == 0, attack.stderr
    counts = json.loads(attack.stdout)
    print(counts)
    result = job.finish()
    assert result.returncode == 0
    assert result.stdout.count("finished") == 4
    assert not marker.exists()
    assert counts["accepted"] == 0
    # How often depends on the machine; each kind must have been tried.
    assert counts["half-open"] > 0
    assert all(counts[name] > 0 for name in ("random", "http", "pickle", "framed", "replay"))


def variable(pid: int, name: str) -> str:
    for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if entry.startswith(name.encode() + b"="):
            return entry.decode().partition("=")[2]
    raise AssertionError(name)


def check_that_only_chosen_addresses_are_open(launcher: int) -> None:
    """Neither the other networks of the launcher's host, nor 'any address'."""
    deadline = time.monotonic() + 30
    for address in ("198.51.100.1", "172.17.0.1", socket.inet_ntoa(bytes(4))):
        while listening(launcher, address):
            assert time.monotonic() < deadline, f"{address} is open"
            time.sleep(0.02)
