"""Makes the package of this tree importable for the tests unless one is installed."""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("horovod") is None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
