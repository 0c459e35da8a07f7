"""A crash in one of the engine's threads is reported as one in any other thread."""

import signal
import subprocess
import sys

PROGRAM = """
import ctypes, faulthandler, os, resource, signal, time
from pathlib import Path
import horovod.numpy as hvd

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
faulthandler.enable()
hvd.init()
names = {int(task.name): (task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
(engine,) = [thread for thread, name in names.items() if name == "hvd-engine"]
kill = ctypes.CDLL(None).tgkill
kill(os.getpid(), engine, signal.SIGSEGV)
time.sleep(30)
"""


def test_faulthandler_sees_a_crash_of_the_engine_thread() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGSEGV, done
    assert "Fatal Python error: Segmentation fault" in done.stderr, done.stderr
