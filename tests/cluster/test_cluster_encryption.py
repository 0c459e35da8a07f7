"""HOROVOD_ENCRYPTION=data between two hosts: nothing to be seen on the wire, nobody without it takes part."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_hosts import Hosts
from cluster_job import horovodrun
from util_paths import ROOT

LISTENER = Path(__file__).with_name("cluster_listener.py")
HOSTS = ["-np", "2", "-H", "host1,host2"]
# The sum of two ranks' tensors goes over the wire as it is in any algorithm, and so does the object.
PATTERN = struct.pack("<4d", *[1234567.875] * 4)
JOB = f"""
import numpy as np, horovod.numpy as hvd
hvd.init()
pattern = np.frombuffer(bytes.fromhex("{PATTERN.hex()}"), np.float64)
total = hvd.allreduce(np.tile(pattern, 20000) / 2, op=hvd.Sum, name="x")
assert (total == pattern[0]).all()
assert hvd.broadcast(total, 0, name="y")[5] == pattern[0]
assert hvd.broadcast_object(pattern.tobytes() * 100, 1) == pattern.tobytes() * 100
print("all arrived")
"""


@pytest.mark.parametrize("encryption", ["none", "data"])
def test_what_is_on_the_wire(hosts: Hosts, encryption: str) -> None:
    listener = subprocess.Popen(
        hosts.words(1, sys.executable, LISTENER, "eth0", PATTERN.hex()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert listener.stdout is not None and listener.stdout.readline() == "ready\n"
        env = {"HOROVOD_ENCRYPTION": encryption}
        result = horovodrun(hosts, *HOSTS, sys.executable, "-c", JOB, env=env)
        output, _ = listener.communicate("", timeout=30)
    finally:
        listener.kill()
        listener.wait()
    assert result.stdout.count("all arrived") == 2, result.stderr
    counts = json.loads(output)
    assert counts["bytes"] > 3 * 20000 * 32 * 0.9  # it has seen all of it
    assert (counts["seen"] > 0) == (encryption == "none"), counts


@pytest.mark.parametrize("settings", [["none", "data"], ["data", "none"]], ids=["rank 0", "rank 1"])
def test_who_does_not_encrypt_is_refused(hosts: Hosts, settings: list[str]) -> None:
    code = (
        f"import os; os.environ['HOROVOD_ENCRYPTION'] = {settings}[int(os.environ['HOROVOD_RANK'])]\n" + JOB
    )
    result = horovodrun(hosts, *HOSTS, sys.executable, "-c", code)
    assert result.returncode != 0 and "all arrived" not in result.stdout
    for rank in range(2):  # both say why
        mine = [line for line in result.stderr.splitlines() if line.startswith(f"[{rank}]")]
        text = "HOROVOD_ENCRYPTION must be the same on all ranks"
        assert any(text in line for line in mine), result.stderr


def test_without_the_library_it_does_not_start(hosts: Hosts, tmp_path: Path) -> None:
    found = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    libraries = [Path(line.split()[-1]) for line in found.splitlines() if "libcrypto.so." in line]
    empty = tmp_path / "empty"
    empty.touch()
    words = hosts.words(
        1,
        sys.executable,
        "-c",
        "import horovod.numpy as hvd; hvd.init()",
        mounts=[(empty, library.resolve()) for library in libraries],
    )
    env = {"PYTHONPATH": str(ROOT), "HOROVOD_ENCRYPTION": "data", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    result = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert result.returncode != 0
    assert "HOROVOD_ENCRYPTION=data: encryption needs OpenSSL's library libcrypto.so.3" in result.stderr
