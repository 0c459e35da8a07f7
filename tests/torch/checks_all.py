"""The checks of several files for a single launch, as importing torch takes long."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# The number of ranks makes no difference to the compiler, and it takes long.
COMPILE = ("compile",) if os.environ["HOROVOD_SIZE"] == "2" else ()

for subject in ("ops", "autograd", "staging", "functions", "sync_batch_norm", *COMPILE, "errors"):
    module = importlib.import_module(f"checks_{subject}")
    for name, check in list(vars(module).items()):
        if name.startswith("check_"):
            globals()[f"check_{subject}_{name.removeprefix('check_')}"] = check
