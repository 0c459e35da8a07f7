"""Where other interpreters find this very package."""

from __future__ import annotations

import os
from pathlib import Path

from horovod import __file__ as package


def package_path(python_path: str) -> list[str]:
    """The entries of PYTHONPATH with which an agent finds it from anywhere."""
    entries = [os.path.abspath(entry) for entry in python_path.split(os.pathsep) if entry]
    root = Path(package).resolve().parents[1]
    # Installed packages are found anyway, and must not come before the standard library.
    if root.name not in ("site-packages", "dist-packages"):
        entries.append(str(root))
    return entries
