"""horovod.tensorflow.data: a compute job and a training job, with TensorFlow's dispatchers and workers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bootstrap_relay import Relay
from util_launch import launch
from util_packages import Lazy, needs
from util_paths import ROOT

from horovod._bootstrap.identity import Identity
from horovod._net import connector
from horovod.common.exceptions import HorovodInternalError
from horovod.numpy import shutdown

needs("tensorflow")
service = Lazy("horovod.tensorflow.data.service_config")
compute_registry = Lazy("horovod.tensorflow.data.compute_registry")
compute_worker = Lazy("horovod.tensorflow.data.compute_worker")

HERE = Path(__file__).parent
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
COMPUTE = ("-m", "horovod.tensorflow.data.compute_worker")


def config(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "dispatchers": 2,
        "workers_per_dispatcher": 3,
        "dispatcher_side": "training",
        "addresses": {"lo": [("127.0.0.1", 1)], "eth0": [("192.0.2.1", 2), ("192.0.2.2", 3)]},
        "key": bytes(range(32)),
        "timeout": 7,
    }
    return service.TfDataServiceConfig(**{**values, **changes})


@pytest.mark.parametrize(
    ("side", "more"),
    [("compute", ["--network-interface", "lo"]), pytest.param("training", [], marks=pytest.mark.slow)],
)
def test_training_on_another_jobs_data(side: str, more: list[str], tmp_path: Path) -> None:
    file = tmp_path / "compute.json"
    with ThreadPoolExecutor() as pool:
        compute = pool.submit(launch, 2, *COMPUTE, file, "--dispatcher-side", side, *more, **QUIET)
        training = launch(2, HERE / "program_data_service.py", file, timeout=200, **QUIET)
        if training.code != 0 and file.exists():
            service.TfDataServiceConfig.read(str(file)).compute_client().shutdown()
        assert training.code == 0 and "trained with the data service" in training.output, training.output
        outcome = compute.result()
    assert outcome.code == 0, outcome.output
    assert not file.exists() and not list(tmp_path.iterdir())


def test_the_file(tmp_path: Path) -> None:
    file = tmp_path / "compute.json"
    with pytest.raises(TimeoutError, match=r"compute\.json"):
        service.TfDataServiceConfig.read(str(file), wait_for_file_creation=True, timeout=0.2)
    with pytest.raises(FileNotFoundError):
        service.TfDataServiceConfig.read(str(file))
    file.write_text("not the last one", encoding="utf-8")
    config().write(str(file))
    assert file.stat().st_mode & 0o777 == 0o600 and list(tmp_path.iterdir()) == [file]
    assert service.TfDataServiceConfig.read(str(file)) == config()
    assert service.TfDataServiceConfig.from_dict(json.loads(json.dumps(config().to_dict()))) == config()
    assert "\\x01" not in repr(config()) and "AAEC" not in repr(config())
    for mode in (0o666, 0o620, 0o644, 0o640):  # who can read it could join
        file.chmod(mode)
        with pytest.raises(PermissionError, match="other accounts"):
            service.TfDataServiceConfig.read(str(file))
    file.chmod(0o600)
    for wrong in ("{", "[]", "{}", json.dumps({**config().to_dict(), "key": "AAAA"})):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(ValueError, match=r"configuration|key"):
            service.TfDataServiceConfig.read(str(file))


def test_a_compute_job_of_another_launcher(tmp_path: Path) -> None:
    """torchrun gives the ranks no common key: they have that of their world."""
    file = tmp_path / "compute.json"
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *COMPUTE, str(file)]
    env = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    job = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        found = service.TfDataServiceConfig.read(str(file), wait_for_file_creation=True, timeout=120)
        client = found.compute_client()
        client.wait_for_dispatcher_worker_registration(0, 120)  # of both ranks
        client.shutdown()
        output, _ = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait()
    assert job.returncode == 0, output


@pytest.mark.parametrize("forth", [True, False], ids=["request", "answer"])
def test_someone_in_between_is_noticed(forth: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the way to the registry: what was changed, or comes from another connection, is an error."""
    handshake = 80 if forth else 72
    connect = connector.open_socket
    recorded: list[bytes] = []

    def ask(change: Callable[[bytes], bytes]) -> None:
        def meddle(kind: str, towards: bool, before: int, data: bytes) -> bytes:
            return change(data) if towards == forth and before >= handshake else data

        def divert(endpoint: tuple[str, int], timeout: float) -> socket.socket:
            return connect(relay.address, timeout)

        with (
            compute_registry.ComputeRegistry(config().key, ["127.0.0.1"], 1, 1) as registry,
            Relay(registry.endpoints[0], meddle) as relay,
            monkeypatch.context() as diverted,
        ):
            diverted.setattr(connector, "open_socket", divert)
            try:
                client = config(addresses={"lo": registry.endpoints}).compute_client()
                client.register_dispatcher(0, "grpc://192.0.2.1:5")
            finally:
                # A request that is refused does nothing.
                assert bool(registry._addresses) == (change is keep or not forth)

    def keep(data: bytes) -> bytes:
        recorded.append(data)
        return data

    def flip(place: int) -> Callable[[bytes], bytes]:
        return lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    ask(keep)
    for change in (flip(10), flip(20), lambda data: recorded[0]):  # code, content; from the first connection
        with pytest.raises((HorovodInternalError, ValueError), match="wrong authentication code"):
            ask(change)
    with pytest.raises((HorovodInternalError, ValueError), match="over the limit"):
        ask(flip(0))  # the length


def test_the_registry_listens_where_the_job_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compute_worker._own_addresses("") == ["127.0.0.1"]
    assert "127.0.0.1" in compute_worker._own_addresses("lo")
    identity = Identity(0, 2, 0, 1, 0, 2, "a", addresses=("192.0.2.7",))
    monkeypatch.setattr("horovod.tensorflow.data.compute_worker.detect", lambda: identity)
    assert compute_worker._own_addresses("") == ["192.0.2.7"]


def test_wrong_values() -> None:
    for wrong in (
        {"dispatchers": 0},
        {"workers_per_dispatcher": 0},
        {"dispatcher_side": "both"},
        {"timeout": 0},
        {"key": b"short"},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            config(**wrong)
    with pytest.raises(ValueError, match="no address"):
        config(addresses={}).compute_client()


def test_wrong_command_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "x.json")
    for arguments, text in (
        ([file, "--dispatchers", "0"], "--dispatchers"),
        ([file, "--timeout", "0"], "--timeout"),
        ([file, "--dispatcher-side", "both"], "--dispatcher-side"),
        ([str(tmp_path / "none" / "x.json")], "no directory"),
        ([file, "--dispatchers", "2"], "another -np"),
        ([file, "--network-interface", "none0"], "none0"),
    ):
        monkeypatch.setattr(sys, "argv", ["compute_worker", *arguments])
        with pytest.raises(SystemExit) as caught:
            compute_worker.run_commandline()
        assert caught.value.code == 2 and text in capsys.readouterr().err
    shutdown()
