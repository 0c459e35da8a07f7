"""What of a job can be reached from outside: nothing of a rank once it is connected, and little before."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from runner_util import Launcher, horovodrun
from util_paths import ROOT

from horovod._bootstrap.world import shared_memory

PYTHON = sys.executable
# Prints what this process still listens on. The thread of the rendezvous, where rank 0 has it, may need a
# moment to close.
LOOK = """
import json, os, time
import horovod.numpy as hvd

def doors():
    links = []
    for entry in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{entry}"))
        except OSError:
            pass
    found = []
    for table, state, inode, open_ in (("tcp", 3, 9, "0A"), ("tcp6", 3, 9, "0A"), ("unix", 3, 6, "00010000")):
        for line in open(f"/proc/self/net/{table}").readlines()[1:]:
            words = line.split()
            if words[state] == open_ and f"socket:[{words[inode]}]" in links:
                found.append(line.strip())
    return found

hvd.init()
deadline = time.monotonic() + 20
while doors() and time.monotonic() < deadline:
    time.sleep(0.05)
print("found", json.dumps(doors()), flush=True)
hvd.barrier()
"""


def reports(output: str) -> list[list[str]]:
    return [json.loads(line.partition("found ")[2]) for line in output.splitlines() if "found " in line]


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_connected_ranks_do_not_listen(transport: str) -> None:
    result = horovodrun("-np", "2", PYTHON, "-c", LOOK, env={"HOROVOD_TRANSPORT": transport}, seconds=60)
    assert reports(result.stdout) == [[], []], result


def test_a_rank_0_that_had_the_rendezvous_does_not_listen(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [PYTHON, "-c", LOOK],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OMPI_COMM_WORLD_RANK": str(rank),
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                "HOME": str(tmp_path),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert reports("".join(outputs)) == [[], []]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]  # the endpoint's file is gone


def test_on_one_machine_the_launcher_listens_on_loopback_only() -> None:
    launcher = Launcher("-np", "1", "sh", "-c", "echo running; exec sleep 30")
    launcher.wait_for(1, "running")
    family = launcher.family()
    doors = [
        end.laddr.ip for each in family for end in each.net_connections("inet") if end.status == "LISTEN"
    ]
    assert len(family) == 4 and doors == ["127.0.0.1"]
    launcher.process.terminate()
    assert launcher.finish().returncode == 143


def test_nobody_can_change_the_size_of_shared_memory() -> None:
    """Access beyond its end would kill the others."""
    memory = shared_memory.create([8192])
    for size in (0, 4096, 16384):
        with pytest.raises(PermissionError):
            os.ftruncate(memory, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(memory, 1033, 0)  # F_ADD_SEALS: nor what is forbidden
    os.close(memory)
