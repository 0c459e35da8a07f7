"""The checks of several files for a single launch, as importing torch takes long."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

for subject in ("ops", "autograd", "staging", "functions", "sync_batch_norm", "errors"):
    module = importlib.import_module(f"checks_{subject}")
    for name, check in list(vars(module).items()):
        if name.startswith("check_"):
            globals()[f"check_{subject}_{name.removeprefix('check_')}"] = check
