"""The names under which schedulers and tools know parts of the launcher."""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from horovod._bootstrap.identity import variables
from horovod.runner import launch
from horovod.runner.common.util import hosts, network, safe_shell_exec, secret
from horovod.runner.common.util.env import KUBEFLOW_MPI_EXEC, get_env_rank_and_size, is_exportable
from horovod.runner.common.util.settings import Settings
from horovod.runner.common.util.timeout import Timeout, TimeoutException
from horovod.runner.util.threads import execute_function_multithreaded, in_thread, on_event

OMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 1)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, (2, 4)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4", **OMPI}, (1, 3)),
        ({"HOROVOD_RANK": "5", "HOROVOD_SIZE": "6", **OMPI}, (5, 6)),
    ],
)
def test_rank_and_size(
    environ: dict[str, str], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert get_env_rank_and_size(environ) == expected
    for name in [name for name in os.environ if name.endswith(("_RANK", "_SIZE"))]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert get_env_rank_and_size() == expected


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"HOROVOD_RANK": "1"}, "HOROVOD_RANK is set, but HOROVOD_SIZE is not"),
        ({"PMI_SIZE": "1"}, "PMI_SIZE is set, but PMI_RANK is not"),
        ({"HOROVOD_RANK": "x", "HOROVOD_SIZE": "2"}, "HOROVOD_RANK='x'"),
    ],
)
def test_half_a_pair(environ: dict[str, str], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        get_env_rank_and_size(environ)


def test_environment_for_others() -> None:
    assert KUBEFLOW_MPI_EXEC == "/etc/mpi/kubexec.sh"
    assert (
        is_exportable("PATH") and not is_exportable("OLDPWD") and not is_exportable(secret.HOROVOD_SECRET_KEY)
    )


def test_threads() -> None:
    seen: list[Any] = []
    in_thread(seen.append, (1,), name="one").join(60)
    in_thread(lambda: 1 / 0, silent=True).join(60)
    with pytest.raises(ValueError, match=r"must be a tuple, not int: .* \(x,\)"):
        in_thread(seen.append, 1)  # type: ignore[arg-type]
    event, stop = threading.Event(), threading.Event()
    waiting = on_event(event, seen.append, (2,))
    stopped = on_event(threading.Event(), seen.append, (3,), stop=stop, check_stop_interval_s=0.01)
    event.set()
    stop.set()
    waiting.join(60)
    stopped.join(60)
    assert seen == [1, 2] and not stopped.is_alive()
    assert execute_function_multithreaded(pow, [(2, 3), (3, 2)], max_concurrent_executions=1) == {0: 8, 1: 9}
    assert execute_function_multithreaded(seen.append, [], block_until_all_done=False) is None
    with pytest.raises(ZeroDivisionError):
        execute_function_multithreaded(divmod, [(1, 1), (1, 0)])


def test_hosts(tmp_path: Path) -> None:
    assert hosts.parse_hosts_and_slots("a:2,b:1") == (["a", "b"], {"a": 2, "b": 1})
    file = tmp_path / "hosts"
    file.write_text("a slots=2\n# nobody\nb\n")
    assert hosts.parse_host_files(str(file)) == "a:2,b:1"
    nodes = hosts.parse_hosts("a:2,b:2")
    assert [slot.rank for slot in hosts.get_host_assignments(nodes, 1)] == [0, 1, 2, 3]
    slots = hosts.get_host_assignments(nodes, 1, 3)
    assert [(slot.hostname, slot.local_rank, slot.cross_size) for slot in slots][2] == ("b", 0, 2)
    with pytest.raises(ValueError, match="5 processes were requested but the hosts have 4 slots"):
        hosts.get_host_assignments(nodes, 5)


def test_settings_are_flags() -> None:
    settings = Settings(
        hosts="localhost:2", num_proc=2, verbose=1, nics=["lo"], start_timeout=9, key=b"very secret"
    )
    assert "secret" not in repr(settings)
    args = launch.parse_args([*settings.flags(), "train.py", "-x"])
    assert (args.num_proc, args.hosts, args.nics, args.start_timeout) == (2, "localhost:2", {"lo"}, "9")
    assert args.command == ["train.py", "-x"] and args.verbose
    assert Settings().flags() == []
    with pytest.raises(ValueError, match="needs an ElasticSettings"):
        Settings(elastic=True).flags()


def test_timeout() -> None:
    over, later = Timeout(0, "{activity} took more than {timeout} s"), Timeout(100, "")
    assert over.timed_out() and not later.timed_out() and 90 < later.remaining() <= 100
    later.check_time_out_for("nothing")
    with pytest.raises(TimeoutException, match="waiting took more than 0 s"):
        over.check_time_out_for("waiting")


def test_secret_keys_are_what_processes_take() -> None:
    key = secret.make_secret_key()
    assert key != secret.make_secret_key()
    assert variables.SECRET == secret.HOROVOD_SECRET_KEY and len(bytes.fromhex(key.decode())) == 32
    digest = secret.compute_digest(key, b"message")
    assert len(digest) == secret.DIGEST_LENGTH
    assert secret.check_digest(key, b"message", digest) and not secret.check_digest(key, b"other", digest)


def test_network() -> None:
    assert "127.0.0.1" in network.get_local_host_addresses()
    assert network.filter_local_addresses(["localhost", "no-such-host.invalid"]) == ["no-such-host.invalid"]
    assert network.get_driver_ip(["lo"]) == "127.0.0.1" == network.resolve_host_address("localhost")
    assert network.resolve_host_address("no-such-host.invalid") is None
    with pytest.raises(ImportError, match=r"BasicService is not there: .*horovod\.run\(\)"):
        from horovod.runner.common.util.network import BasicService  # noqa: F401


def test_command() -> None:
    out, err = io.StringIO(), io.StringIO()
    assert safe_shell_exec.execute("echo $A; echo err >&2; exit 3", {"A": "x y"}, out, err, index=2) == 3
    assert (out.getvalue(), err.getvalue()) == ("[2]<stdout>:x y\n", "[2]<stderr>:err\n")
    out = io.StringIO()
    assert safe_shell_exec.execute(["echo", "$A; true"], stdout=out) == 0
    assert out.getvalue() == "$A; true\n"
    assert safe_shell_exec.execute("kill -9 $$") == 137
    with pytest.raises(ValueError, match="--prefix-output-with-timestamp"):
        safe_shell_exec.execute("true", prefix_output_with_timestamp=True)


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    "command",
    [
        "sleep 300 & echo $!; wait",
        "(trap '' TERM; exec setsid sleep 300) & echo $!; sleep 300",
        "trap '' TERM; sleep 300 & echo $!; sleep 300; sleep 300",
    ],
)
def test_command_leaves_nothing(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_shell_exec, "GRACEFUL_TERMINATION_TIME_S", 0.5)
    out, event = io.StringIO(), threading.Event()
    codes: list[int] = []
    thread = in_thread(
        lambda: codes.append(safe_shell_exec.execute(command, stdout=out, events=[threading.Event(), event]))
    )
    deadline = time.monotonic() + 60
    while not out.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    child = int(out.getvalue())
    assert lives(child)
    event.set()
    thread.join(60)
    assert codes and codes[0] in (143, 137) and not lives(child)


def test_parse_args() -> None:
    words = ["-np", "2", "--fusion-threshold-mb", "3", "--network-interface", "a", "--jsrun"]
    args = launch.parse_args([*words, "python", "x", "-np", "4"])
    assert (args.num_proc, args.fusion_threshold_mb, args.nics) == (2, "3", {"a"})
    assert (args.use_gloo, args.use_mpi, args.use_jsrun) == (False, False, True)
    assert args.command == ["python", "x", "-np", "4"] and args.hosts is None and args.cycle_time_ms is None
    with pytest.raises(SystemExit):
        launch.parse_args(["--nonsense"])


def test_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(gloo: bool = False, mpi: bool = False, js: bool = False) -> str:
        called: list[str] = []
        ways = [lambda name=name: called.append(name) for name in ("gloo", "mpi", "js")]
        launch.run_controller(gloo, ways[0], mpi, ways[1], js, ways[2], 0)
        assert launch.is_gloo_used(gloo, mpi, js) == (called == ["gloo"])
        return ",".join(called)

    monkeypatch.delenv("LSB_JOBID", raising=False)
    monkeypatch.setattr("horovod.runner.cli.controllers.mpi_built", lambda: True)
    assert ran() == ran(gloo=True) == "gloo" and ran(mpi=True) == "mpi"
    with pytest.raises(ValueError, match="LSB_JOBID is not set"):
        ran(js=True)
    monkeypatch.setattr("horovod.runner.cli.controllers.mpi_built", lambda: False)
    with pytest.raises(ValueError, match="mpi4py"):
        ran(mpi=True)
