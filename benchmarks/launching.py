"""Starts the ranks of one launch, waits for them and reads what they have measured."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from plan import Launch

from horovod._bootstrap.rendezvous.server import RendezvousServer

_RANK = Path(__file__).with_name("rank.py")
_LOOPBACK = "127.0.0.1"
_STOP_SECONDS = 20.0


class LaunchError(Exception):
    """The ranks did not finish; the text says how they ended."""


def mpi_available() -> bool:
    """Whether mpirun and mpi4py are here."""
    import importlib.util

    return shutil.which("mpirun") is not None and importlib.util.find_spec("mpi4py") is not None


def measure(launch: Launch, seconds: float, limit: float) -> dict[str, Any]:
    """Case key -> contender -> count, min, p50, p99. Raises LaunchError, also after `limit` seconds."""
    with tempfile.TemporaryDirectory(prefix="hvd-bench-") as directory:
        results = Path(directory, "results.json")
        cases = [json.dumps(asdict(case)) for case in launch.cases]
        rank = [sys.executable, str(_RANK), str(Path(directory, "store")), str(results), str(seconds), *cases]
        environment = {
            **os.environ,
            "HOROVOD_TRANSPORT": launch.transport,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        if launch.mpi:
            _run_with_mpirun(launch.np, rank, environment, limit)
        else:
            horovodrun = [sys.executable, "-m", "horovod.runner.launch", "-np", str(launch.np)]
            _run([*horovodrun, *rank], environment, limit)
        found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
        return found


def _run_with_mpirun(np: int, rank: Sequence[str], environment: dict[str, str], limit: float) -> None:
    key = secrets.token_bytes(32)
    command = ["mpirun", "-np", str(np), "--oversubscribe"]
    # Open MPI would pin each rank to a core, and with it the threads of the other contenders.
    command += ["--bind-to", "none"]
    command += ["--mca", "btl", "self,vader", "--mca", "oob_tcp_if_include", "lo"]
    with RendezvousServer(key, _LOOPBACK) as server:
        environment |= {
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": _LOOPBACK,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(server.port),
            "_HOROVOD_SECRET_KEY": key.hex(),
        }
        if os.geteuid() == 0:
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        _run([*command, *rank], environment, limit)


def _run(command: Sequence[str], environment: dict[str, str], limit: float) -> None:
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        raise LaunchError(f"{command[0]} did not finish in {limit:.0f} s: a rank may hang") from None
    finally:
        _stop(process)
    if code != 0:
        raise LaunchError(f"{command[0]} ended with code {code}; its output is above")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends it with its ranks if it still runs; both launchers do that on SIGTERM."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
