"""Ranks that stand still, in real processes: who is missing, and in which line of its program."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from util_lag import Lag
from util_launch import launch

WITHIN = 2.0  # seconds after HOROVOD_STALL_CHECK_TIME_SECONDS

# Rank 1 is late, in one of several ways, until rank 0 has said so; then everything goes on.
LATE = """
import ctypes, os, queue, sys, threading, time
import numpy as np
import horovod.numpy as hvd
from horovod.common import observer

HEARD = sys.argv[2]  # a file that rank 0 makes when it has heard of the stall

def heard():
    return os.path.exists(HEARD)

def in_sleep():
    while not heard():
        time.sleep(0.05)  # the line

def in_lock():
    lock = threading.Lock()
    lock.acquire()
    threading.Thread(target=lambda: (wait_for_it(), lock.release()), daemon=True).start()
    lock.acquire()  # the line

def wait_for_it():
    while not heard():
        time.sleep(0.05)

def in_c():
    keeps_the_lock = ctypes.PyDLL(None).usleep
    keeps_the_lock(7_000_000)  # the line

def idle(jobs):
    jobs.get()

resolved = threading.Event()

def on_event(event):
    if event["event"] == "stall":
        if not heard():
            print(f"told after {time.monotonic() - began:.2f} s", flush=True)
        open(HEARD, "w").close()
    if event["event"] == "stall_resolved":
        resolved.set()

hvd.init()
if hvd.rank() == 0:
    observer.listen(on_event)
for _ in range(20):  # as loaders of data have them
    threading.Thread(target=idle, args=(queue.Queue(),), daemon=True).start()
hvd.barrier()
began = time.monotonic()
if hvd.rank() == 1:
    {"sleep": in_sleep, "lock": in_lock, "c": in_c}[sys.argv[1]]()
hvd.allreduce(np.ones(3), name="awaited")
if hvd.rank() == 0:
    assert resolved.wait(60)
hvd.barrier()
"""


def _line_of(way: str) -> int:
    """The number of the line that rank 1 is found in."""
    lines = LATE.splitlines()
    start = next(i for i, line in enumerate(lines) if line == f"def in_{way}():")
    return next(i for i in range(start, len(lines)) if lines[i].endswith("# the line")) + 1


@pytest.mark.parametrize("way", ["sleep", "lock", "c"])
def test_the_line_of_the_missing_rank_is_named(tmp_path: Path, lag: Lag, way: str) -> None:
    script = tmp_path / "late.py"
    script.write_text(LATE)
    start = time.monotonic()
    outcome = launch(2, script, way, tmp_path / "heard", timeout=120, HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    assert outcome.code == 0, outcome.output
    said = re.search(
        r"allreduce\.awaited has waited .* for rank 1 \(host \S+, pid \d+\); ready: 0\.", outcome.output
    )
    assert said, outcome.output
    assert "Missing on rank(s) 1: allreduce.awaited" in outcome.output
    line, function = _line_of(way), f"in_{way}"
    place = rf"Rank 1 MainThread: \S*late\.py:{line} {function} <- \S*late\.py:\d+ <module>"
    assert re.search(place, outcome.output), outcome.output
    assert "observer.py" not in outcome.output
    assert ("Rank 1 Thread 0x" in outcome.output) == (way == "c"), outcome.output  # by the signal
    told = re.search(r"told after (\S+) s", outcome.output)
    assert told and 1.0 <= float(told[1]) < 1.0 + WITHIN + lag.allowance_since(start), outcome.output
    assert "allreduce.awaited goes on" in outcome.output, outcome.output


def test_without_stacks(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(LATE)
    outcome = launch(
        2,
        script,
        "sleep",
        tmp_path / "heard",
        timeout=120,
        HOROVOD_STALL_CHECK_TIME_SECONDS="1",
        HOROVOD_STALL_STACKS="0",
    )
    assert outcome.code == 0, outcome.output
    assert "has waited" in outcome.output and "late.py:" not in outcome.output, outcome.output


STUCK = """
import sys, time
import horovod.numpy as hvd

def stuck_here():
    time.sleep(100)

hvd.init()
hvd.barrier()
if hvd.rank() == 1:
    stuck_here()
hvd.barrier()
"""


def test_the_end_tells_where_all_ranks_are(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "60", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "1"}
    outcome = launch(2, tmp_path / "stuck.py", timeout=120, **limits)
    assert outcome.code != 0
    before, _, after = outcome.output.partition("The job ends because of this; where the ranks are:")
    assert "Rank 1 " not in before, outcome.output
    for rank, places in ((0, r".* barrier <-"), (1, r"\S*stuck\.py:\d+ stuck_here <-")):
        line = rf"Rank {rank} MainThread: {places} \S*stuck\.py:\d+ <module>"
        assert re.search(line, after), outcome.output
    assert "has waited for rank(s) 1 for more than 1 seconds" in after


ON_DEMAND = """
import json, sys
import horovod.numpy as hvd

hvd.init()
stacks = hvd.dump_stacks()
hvd.barrier()
if hvd.rank() == 0:
    json.dump(stacks, open(sys.argv[1], "w"))
"""


def test_stacks_on_demand(tmp_path: Path) -> None:
    script = tmp_path / "on_demand.py"
    script.write_text(ON_DEMAND)
    outcome = launch(3, script, tmp_path / "stacks.json", timeout=120)
    assert outcome.code == 0, outcome.output
    stacks = json.loads((tmp_path / "stacks.json").read_text())
    assert stacks.keys() == {"0", "1", "2"}
    assert all(re.search(r"MainThread: .*on_demand\.py:\d+ <module>", text) for text in stacks.values()), (
        stacks
    )


ENDS = """
import os, sys, threading
import horovod.numpy as hvd

for _ in range(300):
    hvd.init()
    hvd.shutdown()
assert [t.name for t in threading.enumerate()] == ["MainThread"], threading.enumerate()
hvd.init()
assert hvd.dump_stacks()[0].startswith("MainThread: "), "no stack"
pid = os.fork()
if pid == 0:
    os._exit(0 if not hvd.is_initialized() and threading.active_count() == 1 else 1)
assert os.waitpid(pid, 0)[1] == 0
print("through")
"""


def test_the_thread_ends_with_the_engine() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "through\n"), done.stderr


def _initialised(**environment: str) -> subprocess.CompletedProcess[str]:
    program = "import horovod.numpy as hvd; hvd.init()"
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("value", ["nonsense", "SIGRTMIN+99", "9", "SIGSEGV"])
def test_a_signal_that_can_not_be_used(value: str) -> None:
    program = (
        f"import os; os.environ['HOROVOD_STACK_SIGNAL'] = {value!r}; import horovod.numpy as hvd; hvd.init()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0 and "HOROVOD_STACK_SIGNAL" in done.stderr


@pytest.mark.parametrize(("value", "caught"), [("", True), ("SIGRTMIN+3", True), ("none", False)])
def test_which_signal_is_caught(value: str, caught: bool) -> None:
    """For ranks whose Python can't answer."""
    program = (
        "import horovod.numpy as hvd; hvd.init(); "
        "print(next(line for line in open('/proc/self/status') if line.startswith('SigCgt')).split()[1])"
    )
    environment = {**os.environ, **({"HOROVOD_STACK_SIGNAL": value} if value else {})}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    number = signal.SIGRTMIN + (3 if value == "SIGRTMIN+3" else 9)
    assert bool(int(done.stdout, 16) >> (number - 1) & 1) == caught


@pytest.mark.parametrize(("value", "said"), [("1", True), ("0", False)])
def test_variables_without_effect_are_named(value: str, said: bool) -> None:
    done = _initialised(HOROVOD_TORUS_ALLREDUCE=value)
    assert done.returncode == 0
    assert ("HOROVOD_TORUS_ALLREDUCE has no effect" in done.stderr) == said
