"""An init() that fails after the engine has started leaves nothing of it behind."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, threading
from pathlib import Path
import horovod.numpy as hvd
from horovod.common import feed, observer

def remains():
    for thread in threading.enumerate():
        if thread.name == "horovod-observer":
            thread.join(10)  # the end of the engine is its end, too
    threads = {(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
    threads |= {thread.name for thread in threading.enumerate()}
    return sorted(name for name in threads if name.startswith(("hvd-", "horovod-")))

def fail(*arguments):
    raise OSError("for the test")

hvd.init()  # what is loaded and opened once
hvd.shutdown()
descriptors = len(os.listdir("/proc/self/fd"))
module, name = {"feed": (feed, "opened"), "handler": (observer, "_Handler")}[sys.argv[1]]
works = getattr(module, name)
setattr(module, name, fail)
try:
    hvd.init()
    print("no error")
except OSError as error:
    print(error)
# Here: the error's traceback has kept the engine.
print(remains(), len(os.listdir("/proc/self/fd")) - descriptors)
setattr(module, name, works)
hvd.init()
print("size", hvd.size())
"""


@pytest.mark.parametrize("what", ["feed", "handler"])
def test_nothing_is_left_of_a_start_that_fails(what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, what], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines() == ["for the test", "[] 0", "size 1"], done
