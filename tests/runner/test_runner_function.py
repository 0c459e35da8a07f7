"""horovod.run: functions on several processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runner_util import ENOUGH, MARKER, family, wait_until
from util_paths import ROOT

import horovod


def test_results_in_rank_order(capfd: pytest.CaptureFixture[str]) -> None:
    def work(factor: int, *, offset: int) -> tuple[int, int]:
        import numpy as np

        import horovod.numpy as hvd

        hvd.init()
        total = hvd.allreduce(np.array([hvd.rank() + 1]), op=hvd.Sum)
        print("working on", hvd.rank())
        return hvd.rank() * factor + offset, int(total[0])

    assert horovod.run(work, (10,), {"offset": 1}, num_proc=3) == [(1, 6), (11, 6), (21, 6)]
    assert "[2]<stdout>:working on 2" in capfd.readouterr().out


def test_the_failing_rank_and_its_traceback_are_in_the_error() -> None:
    def work() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            raise KeyError("the culprit")
        time.sleep(1000)

    with pytest.raises(RuntimeError, match="Horovod detected that one or more processes exited") as info:
        horovod.run(work, num_proc=2)
    text = str(info.value)
    assert "rank 1 on localhost failed first" in text
    assert "Traceback" in text and "KeyError: 'the culprit'" in text and "Exit code: 1" in text


def test_large_arguments_and_results() -> None:
    data = os.urandom(3 << 20)
    assert horovod.run(lambda text: text[::-1], (data,), num_proc=2) == [data[::-1]] * 2


def test_result_that_cannot_be_pickled() -> None:
    with pytest.raises(RuntimeError, match="the function returned a generator, which cannot be sent back"):
        horovod.run(lambda: (each for each in ()))


def test_a_function_that_exits_has_no_result() -> None:
    with pytest.raises(RuntimeError, match="rank 0 ended with code 0 but without a result"):
        horovod.run(lambda: os._exit(0))


@pytest.mark.parametrize(
    "arguments",
    [
        {"hosts": "localhost:1", "hostfile": "x"},
        {"use_gloo": True, "use_mpi": True},
    ],
)
def test_contradictions(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        horovod.run(print, **arguments)


def test_wrong_flags_are_explained() -> None:
    with pytest.raises(RuntimeError, match="2 processes were requested but the hosts have 1 slots"):
        horovod.run(print, num_proc=2, hosts="localhost:1")


def test_old_names_warn() -> None:
    with pytest.warns(DeprecationWarning, match="np is deprecated; use num_proc"):
        assert horovod.run(lambda: os.environ["HOROVOD_SIZE"], np=2) == ["2", "2"]


@pytest.mark.parametrize("interfaces", [["lo", "eth77"], ("lo", "eth77"), "lo,eth77"])
def test_interfaces_in_a_list(interfaces: Any) -> None:
    found = horovod.run(lambda: os.environ["NCCL_SOCKET_IFNAME"], network_interfaces=interfaces)
    assert found == ["lo,eth77"]


def in_a_script(tmp_path: Path, text: str, marker: str) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(text)
    return subprocess.Popen(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), MARKER: marker},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_functions_of_main_and_of_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def double(x):\n    return 2 * x\n")
    text = (
        "import horovod\nfrom beside import double\n"
        "class Thing:\n    def __init__(self, x): self.x = x\n"
        "def work(thing):\n    return Thing(double(thing.x))\n"
        "if __name__ == '__main__':\n"
        "    print([each.x for each in horovod.run(work, (Thing(4),), num_proc=2)])\n"
    )
    out, err = in_a_script(tmp_path, text, "").communicate(timeout=60)
    assert out == "[8, 8]\n", err


def test_nothing_is_imported_from_the_current_directory(tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.mkdir()
    for name in ("argparse", "json", "selectors", "cloudpickle", "horovod"):
        (strange / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})\n")
    text = (
        f"import os, horovod\nos.chdir({str(strange)!r})\n"
        "print(horovod.run(os.getcwd, num_proc=2), flush=True)\n"
    )
    out, err = in_a_script(tmp_path, text, "").communicate(timeout=60)
    assert out == f"{[str(strange)] * 2}\n", err
    assert not (tmp_path / "executed").exists()


def test_output_waits_for_a_slow_reader(tmp_path: Path) -> None:
    """It fits into the pipes, so that the launcher has ended long before it is read."""
    text = (
        "import horovod\ndef work():\n    for i in range(1100): print(i, 'x' * 85)\n"
        "horovod.run(work, num_proc=1)\n"
    )
    process = in_a_script(tmp_path, text, "")
    time.sleep(12)
    out, err = process.communicate(timeout=60)
    assert [line.split()[0] for line in out.splitlines()] == [f"[0]<stdout>:{i}" for i in range(1100)], err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_job_ends_with_its_caller(tmp_path: Path, number: int) -> None:
    text = (
        "import horovod, time\ndef work():\n    print('ready', flush=True); time.sleep(100)\n"
        "horovod.run(work, num_proc=2)\n"
    )
    marker = f"{tmp_path}-{number}"
    process = in_a_script(tmp_path, text, marker)
    assert process.stdout is not None
    for _ in range(2):
        assert "ready" in process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in err
    nobody: Callable[[], bool] = lambda: not family(marker)  # noqa: E731
    wait_until(nobody, ENOUGH, "processes are left")
