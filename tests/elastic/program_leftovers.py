"""A worker of an agent that leaves processes behind: one of its group, one that has moved away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

SLEEP = "import time; time.sleep(1000)"


def main(mode: str) -> None:
    near = subprocess.Popen([sys.executable, "-c", SLEEP])
    far = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(os.getpid(), near.pid, far.pid, flush=True)
    while mode != "leaves":
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1])
