"""torchrun: one agent, and two that stand for two machines."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from started_by import environment, places, rank, run
from util_packages import needs

needs("torch")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def test_one_agent() -> None:
    code, output = run([*TORCHRUN, "--nproc-per-node", "2", *rank("well")[1:]], environment())
    assert code == 0 and places(output) == ["0/2 0/2 0/1", "1/2 1/2 0/1"], output


def test_two_agents_with_a_key_file(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text("k" * 64)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = [*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "1"]
    words += ["--master-addr", "127.0.0.1", "--master-port", port, "--node-rank"]
    env = environment(HOROVOD_SECRET_KEY_FILE=str(key), HOME="/nonexistent")
    command = [*words, "1", *map(str, rank("well")[1:])]
    other = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        code, output = run([*words, "0", *rank("well")[1:]], env)
        output += other.communicate(timeout=60)[0]
    finally:
        other.kill()
        other.wait()
    assert code == 0 and places(output) == ["0/2 0/1 0/2", "1/2 0/1 1/2"], output
