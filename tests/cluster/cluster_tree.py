"""A rank with two families of three generations below it, one of them a daemon's; trains until it fails."""

from __future__ import annotations

import os
import subprocess
import time

import numpy as np

import horovod.numpy as hvd

# A shell that waits for a shell that waits for a program.
TREE = ["sh", "-c", "sh -c 'sleep 1000; true'; true"]


def main() -> None:
    subprocess.Popen(TREE)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sh", TREE)
        os._exit(0)
    os.wait()
    hvd.init()
    for step in range(10**9):
        hvd.allreduce(np.ones(5), name="x")
        if step == 0:
            print("running", flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
