"""Failures, signals and murder: the right exit code, the right words, and nobody left behind."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from runner_util import ENOUGH, Launcher, horovodrun, wait_until
from util_paths import ROOT

from horovod.runner.launcher import failure

PYTHON = sys.executable


def program(rank: int, action: str, of_others: str) -> str:
    """What one rank does, and what the others do."""
    return f"import os, sys, time\nif os.environ['HOROVOD_RANK'] == '{rank}': {action}\n{of_others}"


def test_exit_code_and_traceback_of_the_first_failure() -> None:
    code = program(1, "raise RuntimeError('the culprit')", "time.sleep(60)")
    result = horovodrun("-np", "3", "--grace-period", "0.5", PYTHON, "-c", code)
    assert result.returncode == 1
    assert "rank 1 on localhost exited with code 1" in result.stdout
    assert "terminating ranks 0,2 in 0.5 s unless finished by then" in result.stdout
    report = result.stderr.partition("rank 1 on localhost failed first: it exited with code 1")[2]
    assert "  | RuntimeError: the culprit" in report
    assert "Horovod detected that one or more processes exited with non-zero status" in report
    assert report.splitlines()[-2:] == ["Process name: 1", "Exit code: 1"]


def test_many_failures_are_told_together() -> None:
    result = horovodrun("-np", "24", "--grace-period", "60", "sh", "-c", "exit 7")
    lines = [line for line in result.stdout.splitlines() if "exited with code 7" in line]
    assert result.returncode == 7 and len(lines) == 17
    one_by_one = {int(line.split()[2]) for line in lines[:16]}
    rest = sorted(set(range(24)) - one_by_one)
    assert lines[16] == f"horovodrun: {failure.ranks(rest)} on localhost: each exited with code 7"


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -SEGV $$", 139), ("kill -9 $$", 137)])
def test_exit_codes(script: str, code: int) -> None:
    result = horovodrun("-np", "1", "sh", "-c", script)
    assert result.returncode == code
    assert f"Exit code: {code}\n" in result.stderr


def test_others_may_end_by_themselves_in_the_grace_period() -> None:
    # Rank 1 ends when rank 0 is gone, as an engine does that has noticed the death of a peer.
    code = program(0, "sys.exit(5)", "time.sleep(0.3); print('my own error', file=sys.stderr); sys.exit(6)")
    result = horovodrun("-np", "2", "--grace-period", "100", PYTHON, "-c", code)
    assert result.returncode == 5
    assert "[1]<stderr>:my own error" in result.stderr


def test_success_of_some_does_not_end_the_others() -> None:
    script = "if [ $HOROVOD_RANK = 1 ]; then sleep 1; echo late; fi"
    result = horovodrun("-np", "2", "--grace-period", "0", "sh", "-c", script)
    assert (result.returncode, result.stdout) == (0, "[1]<stdout>:late\n")


def test_nobody_waits_for_a_rank_that_has_ended() -> None:
    script = "import os, horovod.numpy as hvd; os.environ['HOROVOD_RANK'] == '1' or hvd.init()"
    result = horovodrun("-np", "2", "--gloo-timeout-seconds", "100", sys.executable, "-c", script)
    assert result.returncode == 1
    assert "rank 1 on localhost exited with code 0 while others wait in hvd.init()" in result.stderr


def test_stubborn_ranks_are_killed() -> None:
    script = "if [ $HOROVOD_RANK = 0 ]; then sleep 0.5; exit 3; fi; trap '' TERM; while :; do sleep 0.1; done"
    begin = time.monotonic()
    result = horovodrun("-np", "2", "--grace-period", "0.2", "sh", "-c", script)
    assert result.returncode == 3
    assert time.monotonic() - begin > 4.5


# Rank 1 looks at rank 0 from before its death until nothing is left of it.
INSPECTION = """
import os, sys, time
from pathlib import Path
pid, watched, killed = (Path(sys.argv[1], name) for name in ("pid", "watched", "killed"))
if os.environ["HOROVOD_RANK"] == "0":
    draft = Path(sys.argv[1], "draft"); draft.write_text(str(os.getpid())); draft.rename(pid)
    while not watched.exists(): time.sleep(0.005)
    killed.write_text(str(time.monotonic()))
    os.kill(os.getpid(), 9)
while not pid.exists(): time.sleep(0.005)
stat, status = Path("/proc", pid.read_text(), "stat"), None
watched.touch()
while True:
    try: fields = stat.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError): break
    if fields[0] == "Z": status = int(fields[-1])
print("inspected", time.monotonic() - float(killed.read_text()), "missed" if status is None else status & 127)
"""


def test_a_dead_rank_can_be_inspected_for_a_while(tmp_path: Path) -> None:
    # Survivors read how a neighbour ended from its zombie.
    for attempt in range(5):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        result = horovodrun("-np", "2", "--grace-period", "100", PYTHON, "-c", INSPECTION, str(directory))
        assert "inspected" in result.stdout, result.stderr
        line = next(line for line in result.stdout.splitlines() if "inspected" in line)
        _, seconds, number = line.split(":")[1].split()
        assert float(seconds) > 0.25
        assert result.returncode == 137
        if number != "missed":  # a busy machine may keep rank 1 from looking all that time
            break
    assert number == "9"


FAMILY = """
import os, subprocess, sys, time, signal
subprocess.Popen(["sleep", "300"])                              # a grandchild
subprocess.Popen(["sleep", "301"], start_new_session=True)      # in a session of its own
if os.fork() == 0:                                              # a daemon: forked twice, TERM ignored
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for fd in (0, 1, 2): os.close(fd)
        time.sleep(302)
    os._exit(0)
os.wait()
print("ready", flush=True)
"""
# Launcher, guardian, agent, and for each of two ranks itself, two sleeps and the daemon.
FULL_FAMILY = 3 + 2 * 4


def start_family(*flags: str, then: str = "time.sleep(303)") -> Launcher:
    launcher = Launcher("-np", "2", *flags, PYTHON, "-c", FAMILY + then)
    wait_until(lambda: len(launcher.family()) == FULL_FAMILY, ENOUGH, "the processes did not start")
    return launcher


@pytest.mark.parametrize("end", ["pass", "sys.exit(4)"])
def test_descendants_end_with_the_job(end: str) -> None:
    result = horovodrun("-np", "2", PYTHON, "-c", FAMILY + end)
    assert result.returncode == (0 if end == "pass" else 4)


def test_murdered_launcher_leaves_nobody() -> None:
    launcher = start_family()
    launcher.process.kill()
    wait_until(lambda: not launcher.family(), ENOUGH, "processes are left after kill -9 of the launcher")
    launcher.finish()


@pytest.mark.parametrize("victim", [Launcher.agent, Launcher.guardian], ids=["agent", "guardian"])
def test_murdered_agent_or_guardian_leaves_nobody(victim: Callable[[Launcher], psutil.Process]) -> None:
    launcher = start_family()
    victim(launcher).kill()
    result = launcher.finish()
    assert launcher.family() == []
    assert result.returncode == 137
    assert "the agent on localhost" in result.stderr and "SIGKILL" in result.stderr


def test_murdered_launcher_and_agent_leave_nobody() -> None:
    launcher = start_family()
    agent = launcher.agent()
    launcher.process.kill()
    agent.kill()
    wait_until(
        lambda: not launcher.family(), ENOUGH, "processes are left after kill -9 of launcher and agent"
    )
    launcher.finish()


def test_terminated_agent_ends_the_job() -> None:
    launcher = start_family(then="signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(303)")
    launcher.agent().terminate()
    result = launcher.finish()
    assert launcher.family() == []
    assert result.returncode != 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_signals_end_the_whole_family(number: int, code: int) -> None:
    launcher = start_family("--grace-period", "0.5")
    launcher.process.send_signal(number)
    result = launcher.finish()
    assert result.returncode == code
    assert launcher.family() == []
    assert "Process name" not in result.stderr


def test_ctrl_c_lets_the_ranks_clean_up() -> None:
    code = (
        "import time\n"
        "try:\n"
        "    print('ready', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(0.3); print('cleaned up')"
    )
    launcher = Launcher("-np", "2", "--grace-period", "100", PYTHON, "-c", code)
    assert launcher.process.stdout is not None
    for _ in range(2):
        assert b"ready" in launcher.process.stdout.readline()
    launcher.process.send_signal(signal.SIGINT)
    result = launcher.finish()
    assert result.returncode == 130
    assert sorted(result.stdout.splitlines()) == ["[0]<stdout>:cleaned up", "[1]<stdout>:cleaned up"]
    assert launcher.family() == []


def test_second_ctrl_c_kills() -> None:
    launcher = Launcher(
        "-np", "1", "--grace-period", "100", "sh", "-c", "trap '' INT TERM; echo ready; sleep 60; sleep 60"
    )
    assert launcher.process.stdout is not None
    assert b"ready" in launcher.process.stdout.readline()
    assert launcher.process.stderr is not None
    launcher.process.send_signal(signal.SIGINT)
    assert b"once more" in launcher.process.stderr.readline()
    time.sleep(1.1)  # sooner, it would be the same one
    launcher.process.send_signal(signal.SIGINT)
    assert launcher.finish().returncode == 130
    assert launcher.family() == []


# A child does the saving, as a program that copies to another machine would.
SAVER = """
import os, signal, subprocess, sys, time
def save(number, frame):
    subprocess.run(["sh", "-c", f"sleep 1; echo saved >>{sys.argv[1]}"])
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("wrapped", [False, True])
def test_sigterm_leaves_time_to_save(tmp_path: Path, wrapped: bool) -> None:
    # A shell around the program does not wait for it after SIGTERM.
    (tmp_path / "train.py").write_text(SAVER)
    command = f"{PYTHON} train.py file; true" if wrapped else f"exec {PYTHON} train.py file"
    launcher = Launcher("-np", "2", "sh", "-c", command, cwd=tmp_path)
    launcher.wait_for(2, "ready")
    launcher.process.terminate()
    result = launcher.finish()
    assert result.returncode == 143
    assert "SIGTERM: terminating all ranks within 30 s" in result.stderr
    assert (tmp_path / "file").read_text() == "saved\n" * 2
    assert launcher.family() == []


def test_time_to_save_ends() -> None:
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    launcher = Launcher("-np", "2", "--term-grace-period", "1", "sh", "-c", stubborn)
    launcher.wait_for(2, "ready")
    begin = time.monotonic()
    launcher.process.terminate()
    assert launcher.finish().returncode == 143
    assert time.monotonic() - begin > 0.9
    assert launcher.family() == []


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_reach_the_ranks_only(number: signal.Signals) -> None:
    code = (
        "import signal, subprocess, sys, threading, time\n"
        "child, told = subprocess.Popen(['cat'], stdin=subprocess.PIPE), threading.Event()\n"
        f"signal.signal({int(number)}, lambda *_: (print('told', flush=True), told.set()))\n"
        "print('ready', flush=True); told.wait()\n"
        "time.sleep(1)  # in case that it comes twice\n"
        "child.stdin.close(); sys.exit(child.wait())"
    )
    launcher = Launcher("-np", "2", PYTHON, "-c", code)
    launcher.wait_for(2, "ready")
    # Slurm sends it to every process of the job step.
    for process in (launcher.agent(), launcher.guardian(), launcher.process):
        process.send_signal(number)
    result = launcher.finish()
    assert sorted(result.stdout.splitlines()) == ["[0]<stdout>:told", "[1]<stdout>:told"]
    assert result.returncode == 0, result.stderr


def test_ctrl_c_twice_within_a_second_counts_once() -> None:
    code = (
        "import signal, time\n"
        "def interrupted(*_): time.sleep(1); print('cleaned up', flush=True); raise SystemExit\n"
        "signal.signal(signal.SIGINT, interrupted)\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    for _ in range(5):
        launcher = Launcher("-np", "1", "--grace-period", "100", PYTHON, "-c", code)
        launcher.wait_for(1, "ready")
        assert launcher.process.stderr is not None
        launcher.process.send_signal(signal.SIGINT)
        assert b"once more" in launcher.process.stderr.readline()
        launcher.process.send_signal(signal.SIGINT)
        result = launcher.finish()
        assert result.returncode == 130
        if "killing" not in result.stderr:  # on a busy machine it may notice the second one too late
            break
    assert "cleaned up" in result.stdout and "killing" not in result.stderr


def writers_are_blocked(launcher: Launcher) -> bool:
    """Whether no process of the job has used any processor time for a while."""
    family = launcher.family()
    before = [process.cpu_times() for process in family]
    time.sleep(0.3)
    return before == [process.cpu_times() for process in family]


def test_console_that_nobody_reads_does_not_prevent_the_end() -> None:
    launcher = Launcher("-np", "2", "yes")
    assert launcher.process.stdout is not None
    os.read(launcher.process.stdout.fileno(), 10)
    wait_until(lambda: len(launcher.family()) == 5, ENOUGH, "the processes did not start")
    wait_until(lambda: writers_are_blocked(launcher), ENOUGH, "the buffers on the way did not fill up")
    launcher.process.terminate()
    assert launcher.process.wait(timeout=ENOUGH) == 143
    assert launcher.family() == []
    launcher.finish()


def test_stopped_rank_is_ended_too() -> None:
    script = "if [ $HOROVOD_RANK = 0 ]; then sleep 0.5; exit 9; fi; kill -STOP $$"
    result = horovodrun("-np", "2", "--grace-period", "0.2", "sh", "-c", script)
    assert result.returncode == 9


def test_ctrl_c_in_a_terminal() -> None:
    leader, terminal = pty.openpty()
    code = "import time; print('ready', flush=True); time.sleep(60)"
    launcher = Launcher("-np", "2", "--grace-period", "10", PYTHON, "-c", code, terminal=terminal)
    os.close(terminal)
    output = b""
    while output.count(b"ready") < 2:
        output += os.read(leader, 4096)
    os.write(leader, b"\x03")
    assert launcher.process.wait(timeout=ENOUGH) == 130
    os.close(leader)
    assert launcher.family() == []


def test_closed_standard_descriptors() -> None:
    launch = f"{PYTHON} -m horovod.runner.launch -np 2 sh -c 'echo hi; exit 6' <&- >&- 2>&-; echo $? >$FILE"
    with tempfile.NamedTemporaryFile() as file:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "FILE": file.name}
        subprocess.run(["sh", "-c", launch], env=env, timeout=ENOUGH, check=True)
        assert file.read() == b"6\n"


def test_ignored_signals_stay_ignored() -> None:
    launcher = Launcher("-np", "1", "sh", "-c", "echo ready; sleep 1", preexec=ignore_hangup)
    assert launcher.process.stdout is not None
    assert b"ready" in launcher.process.stdout.readline()
    launcher.process.send_signal(signal.SIGHUP)
    assert launcher.finish().returncode == 0


def test_the_tests_may_run_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        launcher = Launcher("-np", "1", "sh", "-c", "echo ready; sleep 60")
    finally:
        signal.signal(signal.SIGHUP, before)
    launcher.wait_for(1, "ready")
    launcher.process.send_signal(signal.SIGHUP)
    assert launcher.finish().returncode == 129


def ignore_hangup() -> None:
    """What nohup does."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def test_start_timeout_names_the_host() -> None:
    result = horovodrun("-np", "1", "--start-timeout", "0.001", "sleep", "60")
    assert result.returncode == 1
    assert "starting processes on localhost took longer than 0.001 s" in result.stderr
    assert "--start-timeout" in result.stderr


@pytest.mark.parametrize(("number", "count"), [(9, 3), (11, 200)])
def test_a_killed_rank_does_not_take_its_last_operations_along(number: int, count: int) -> None:
    code = (
        "import os, time, numpy, horovod.numpy as hvd\n"
        "hvd.init()\n"
        f"for i in range({count}): hvd.allreduce(numpy.zeros(3, numpy.float32), name=f'step.{{i}}')\n"
        f"if hvd.rank() == 1: os.kill(os.getpid(), {number})\n"
        "hvd.barrier()\n"
    )
    result = horovodrun("-np", "2", PYTHON, "-c", code)
    assert result.returncode == 128 + number
    told = f"The last operations here before signal {number}, the latest first: "
    (line,) = [line for line in result.stderr.splitlines() if line.startswith(f"[1]<stderr>:{told}")]
    operations = line.partition(told)[2].split(", allreduce.")
    assert [words.removeprefix("allreduce.").split()[0] for words in operations] == [
        f"step.{i}" for i in reversed(range(count)[-10:])
    ]
    assert "(12 bytes, " in operations[0] and " s ago)" in operations[0]
    report = result.stderr.partition("rank 1 on localhost failed first")[2]
    assert f"  | {told}" in report
