"""The checks of this directory for one launch, as importing TensorFlow takes long.

KERAS_CHECKS names the files; all checks of a file `checks_<subject>.py` are run.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

for subject in os.environ["KERAS_CHECKS"].split(","):
    module = importlib.import_module(f"checks_{subject}")
    for name, check in list(vars(module).items()):
        if name.startswith("check_"):
            globals()[f"check_{subject}_{name.removeprefix('check_')}"] = check
