"""horovod.run(use_mpi=True): functions through the real mpirun."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mpi_setup
import pytest
from runner_util import MARKER, family, wait_until
from util_paths import ROOT

import horovod
from horovod._bootstrap.rendezvous.server import RendezvousServer
from horovod.runner.function import exchange
from horovod.runner.function.exchange import FunctionClient, FunctionServer, described


@pytest.fixture
def debian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's Open MPI is the one that is found."""
    mpi = mpi_setup.get("debian")
    for name, value in {**mpi_setup.ENVIRONMENT, **mpi.environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{mpi.mpirun.parent}:/usr/bin:/bin")


def test_results_in_rank_order(debian: None, capfd: pytest.CaptureFixture[str]) -> None:
    def work(factor: int, *, data: bytes) -> tuple[int, int, bytes]:
        import numpy as np

        import horovod.numpy as hvd

        hvd.init()
        assert hvd.mpi_enabled() and "OMPI_COMM_WORLD_RANK" in os.environ
        total = hvd.allreduce(np.array([hvd.rank() + 1]), op=hvd.Sum)
        print("working on", hvd.rank())
        return hvd.rank() * factor, int(total[0]), data[::-1]

    data = os.urandom(5 << 20)  # more than one piece
    results = horovod.run(work, (10,), {"data": data}, num_proc=3, use_mpi=True)
    assert results == [(0, 6, data[::-1]), (10, 6, data[::-1]), (20, 6, data[::-1])]
    # mpirun marks what it reads, which may be parts of a line.
    assert "<stdout>:working" in capfd.readouterr().out


def test_the_failing_rank_and_its_traceback_are_in_the_error(debian: None) -> None:
    def work() -> None:
        import horovod.numpy as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise KeyError("the culprit")
        time.sleep(100)  # MPI_Finalize of the other would wait for this

    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"^mpirun failed with exit code 1\n") as info:
        horovod.run(work, num_proc=2, use_mpi=True)
    assert "Traceback" in str(info.value) and "KeyError: 'the culprit'" in str(info.value)
    assert time.monotonic() - begin < 60


def test_exit_codes(debian: None) -> None:
    with pytest.raises(RuntimeError, match=r"^mpirun failed with exit code 7\n"):
        horovod.run(lambda: sys.exit(7), use_mpi=True)
    with pytest.raises(RuntimeError, match="rank 0 ended with code 0 but without a result"):
        horovod.run(lambda: sys.exit(), use_mpi=True)


def test_without_mpirun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="mpirun is not on PATH: install an MPI"):
        horovod.run(print, use_mpi=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_job_ends_with_its_caller(debian: None, tmp_path: Path, number: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import horovod, time\ndef work():\n    print('ready', flush=True); time.sleep(100)\n"
        "horovod.run(work, num_proc=2, use_mpi=True)\n"
    )
    marker = f"{tmp_path}-{number}"
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), MARKER: marker},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    while said.count("ready") < 2:  # mpirun may mark the parts of a line, or put two into one
        said += (line := process.stdout.readline())
        assert line, said
    assert len(family(marker)) >= 5  # the script, the launcher, mpirun and two ranks
    process.send_signal(number)
    process.communicate(timeout=60)
    nobody: Callable[[], bool] = lambda: not family(marker)  # noqa: E731
    wait_until(nobody, 30, "processes are left")


def test_the_door_is_for_those_with_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_CONNECT_SECONDS", 1.0)
    key = secrets.token_bytes(32)
    door = FunctionServer(b"the function")
    with RendezvousServer(key) as server:
        server.accept(exchange.PURPOSE, door.serve)
        client = FunctionClient(described(key, server.endpoints))
        assert client.fetch() == b"the function"
        client.hand_in(3, b"")
        client.hand_in(1, b"one")
        assert door.results == {3: b"", 1: b"one"}
        stranger = FunctionClient(described(secrets.token_bytes(32), server.endpoints))
        with pytest.raises(ConnectionError, match=r"can't be reached from here: 127\.0\.0\.1:.* refused"):
            stranger.hand_in(0, b"malice")
    assert 0 not in door.results
