"""Real jobs: output, environment, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runner_util import ENOUGH, Launcher, horovodrun
from util_paths import ROOT

PYTHON = sys.executable


def test_prefixes_and_unfinished_lines() -> None:
    script = 'echo "out $HOROVOD_RANK"; echo "err $HOROVOD_RANK" >&2; printf "rest %s" $HOROVOD_RANK'
    result = horovodrun("-np", "2", "sh", "-c", script)
    assert result.returncode == 0
    assert sorted(result.stdout.splitlines()) == [
        "[0]<stdout>:out 0",
        "[0]<stdout>:rest 0",
        "[1]<stdout>:out 1",
        "[1]<stdout>:rest 1",
    ]
    assert sorted(result.stderr.splitlines()) == ["[0]<stderr>:err 0", "[1]<stderr>:err 1"]


def test_timestamps_and_output_files(tmp_path: Path) -> None:
    result = horovodrun(
        "-np",
        "1",
        "-prefix-timestamp",
        "--output-filename",
        str(tmp_path / "logs"),
        "sh",
        "-c",
        "echo a; echo b >&2",
    )
    stamp = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
    assert re.fullmatch(stamp + r"\[0\]<stdout>:a\n", result.stdout)
    assert (tmp_path / "logs" / "rank.0" / "stdout").read_text() == result.stdout
    assert (tmp_path / "logs" / "rank.0" / "stderr").read_text() == result.stderr


def test_many_lines_are_neither_lost_nor_torn() -> None:
    count = 100_000
    code = f"import os\nr = os.environ['HOROVOD_RANK']\nfor i in range({count}): print(r, i, 'ä' * (i % 50))"
    result = horovodrun("-np", "2", PYTHON, "-c", code, env={"PYTHONUTF8": "1"}, seconds=200)
    lines = result.stdout.splitlines()
    assert len(lines) == 2 * count
    for rank in (0, 1):
        mine = [line for line in lines if line.startswith(f"[{rank}]")]
        assert mine == [f"[{rank}]<stdout>:{rank} {i} {'ä' * (i % 50)}" for i in range(count)]


def test_bytes_that_are_no_text_and_progress_lines() -> None:
    launcher = Launcher("-np", "1", "sh", "-c", r"printf '\377\376\n10%%\r20%%\rdone\n'")
    out, _ = launcher.process.communicate(timeout=ENOUGH)
    assert out == b"[0]<stdout>:\xff\xfe\n[0]<stdout>:10%\r[0]<stdout>:20%\r[0]<stdout>:done\n"


def test_environment_of_the_workers(tmp_path: Path) -> None:
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    config = tmp_path / "config.yaml"
    config.write_text("params: {cache_capacity: 5, cycle_time_ms: 9}\n")
    result = horovodrun(
        *("-np", "3", "-H", "localhost:2,127.0.0.1:4", "--config-file", str(config), "--cycle-time-ms", "4"),
        *(PYTHON, "-c", code),
        cwd=tmp_path,
        env={
            "MINE": "wert ü\n2",
            "HOROVOD_CACHE_CAPACITY": "1",
            "HOROVOD_RANK": "77",
            "PYTHONUNBUFFERED": "",
        },
    )
    assert result.returncode == 0, result.stderr
    envs = {int(line[1]): json.loads(line.partition(":")[2]) for line in result.stdout.splitlines()}
    assert sorted(envs) == [0, 1, 2]
    last = envs[2]
    assert last["HOROVOD_HOSTNAME"] == "127.0.0.1"
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    assert [last[f"HOROVOD_{name}"] for name in names] == ["2", "3", "0", "1", "1", "2"]
    assert last["HOROVOD_CONTROLLER"] == last["HOROVOD_CPU_OPERATIONS"] == "gloo"
    assert last["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1"
    assert int(last["HOROVOD_GLOO_RENDEZVOUS_PORT"]) > 0
    assert last["HOROVOD_CACHE_CAPACITY"] == "5" and last["HOROVOD_CYCLE_TIME"] == "4.0"
    assert last["PYTHONUNBUFFERED"] == "1"
    assert last["MINE"] == "wert ü\n2"
    assert len(bytes.fromhex(last["_HOROVOD_SECRET_KEY"])) == 32
    assert {env["_HOROVOD_SECRET_KEY"] for env in envs.values()} == {last["_HOROVOD_SECRET_KEY"]}


def test_workers_lead_process_groups_in_one_session() -> None:
    script = "import os; print(os.getpgrp() == os.getpid(), os.getsid(0))"
    result = horovodrun("-np", "3", PYTHON, "-c", script)
    groups = re.findall(r"^\[\d\]<stdout>:True (\d+)$", result.stdout, re.MULTILINE)
    assert len(groups) == 3 and len(set(groups)) == 1, result.stdout
    assert int(groups[0]) != os.getsid(0)  # Ctrl-C reaches the launcher only


def test_missing_ssh() -> None:
    result = horovodrun("-np", "1", "-H", "192.0.2.55", "true", env={"PATH": "/nonexistent"})
    assert result.returncode == 127
    assert "ssh is not installed here" in result.stderr and "openssh-client" in result.stderr


def test_secret_is_on_no_command_line() -> None:
    launcher = Launcher("-np", "1", "sh", "-c", 'echo "key $_HOROVOD_SECRET_KEY"; exec sleep 30')
    assert launcher.process.stdout is not None
    key = launcher.process.stdout.readline().decode().split()[-1]
    assert len(key) == 64
    family = launcher.family()
    assert len(family) == 4  # launcher, guardian, agent, rank
    assert not any(key in word for process in family for word in process.cmdline())
    launcher.process.terminate()
    assert launcher.finish().returncode == 143


def test_hostfile_and_stdin_is_empty(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# here\n  localhost slots=2\n")
    result = horovodrun("-np", "2", "--hostfile", "hosts", "sh", "-c", "wc -c", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.split()) == ["[0]<stdout>:0", "[1]<stdout>:0"]


@pytest.mark.parametrize("name", ["train.py", "./train.py", "job.sh"])
def test_scripts_as_command(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text("import sys; print(sys.executable, sys.argv[1:])")
    (tmp_path / "job.sh").write_text('echo "$@"\n')
    result = horovodrun("-np", "1", name, "--np", "x y", cwd=tmp_path)
    expected = "--np x y" if name == "job.sh" else f"{PYTHON} ['--np', 'x y']"
    assert (result.returncode, result.stdout) == (0, f"[0]<stdout>:{expected}\n"), result.stderr


def test_files_of_the_user_do_not_shadow_ours(tmp_path: Path) -> None:
    for name in ("selectors", "signal", "socket", "json", "frames"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    # As an installed horovodrun does, which has no '' in its path.
    code = (
        f"import sys; sys.path.remove(''); sys.path.append({str(ROOT)!r})\n"
        "from horovod.runner.launch import run_commandline\n"
        "sys.exit(run_commandline(['-np', '1', 'true']))"
    )
    result = subprocess.run(
        [PYTHON, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=ENOUGH
    )
    assert result.returncode == 0, result.stderr


def test_command_not_found_is_said_at_once() -> None:
    result = horovodrun("-np", "2", "--start-timeout", "100", "no-such-command-at-all")
    assert result.returncode == 127
    assert "'no-such-command-at-all' not found" in result.stderr
    assert "Traceback" not in result.stderr


def test_command_that_cannot_be_executed(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text("#!/no/such/interpreter\n")
    bad.chmod(0o755)
    result = horovodrun("-np", "2", "./bad", cwd=tmp_path)
    assert result.returncode == 127
    assert "could not be started" in result.stderr and "Process name: 0" in result.stderr


def test_reader_that_leaves_ends_the_job() -> None:
    launcher = Launcher("-np", "1", "yes")
    assert launcher.process.stdout is not None
    os.read(launcher.process.stdout.fileno(), 100)
    launcher.process.stdout.close()
    assert launcher.process.wait(timeout=ENOUGH) == 141
    assert launcher.family() == []


def test_start_up_is_quick() -> None:
    begin = time.monotonic()
    subprocess.run([PYTHON, "-c", "import json, selectors, subprocess"], check=True)
    middle = time.monotonic()
    assert horovodrun("-np", "2", "true").returncode == 0
    # About 0.3 s on an idle machine; a busy one takes long for any interpreter.
    assert time.monotonic() - middle < max(5, 50 * (middle - begin))
