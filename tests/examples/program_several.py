"""Runs several examples in one process, as TensorFlow takes seconds to start: each as if started by itself.

Argument: a JSON list of command lines, [script, argument, ...].
"""

from __future__ import annotations

import json
import os
import runpy
import sys

for command in json.loads(sys.argv[1]):
    sys.argv = command
    sys.path[0] = os.path.dirname(command[0])  # as Python does for a script
    if os.environ.get("HOROVOD_RANK", "0") == "0":
        print(f"=== {os.path.basename(command[0])}", flush=True)
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
