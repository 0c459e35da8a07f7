"""``horovodrun --check-build``: what this installation can do, without importing any framework."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

import horovod
from horovod.common.util import mpi_built

_FRAMEWORKS = (("TensorFlow", "tensorflow"), ("PyTorch", "torch"), ("MXNet", "mxnet"))


def check_build(verbose: bool = False) -> str:
    """The text. Scripts look for lines such as ``[X] Gloo``: keep names and layout."""
    lines: list[str] = []
    if verbose:
        lines += ["", *(_details(name, module) for name, module in _FRAMEWORKS), _library(), ""]
    lines.append(f"Horovod v{horovod.__version__}:")
    frameworks = [(name, _has(module) and _has(f"horovod.{module}")) for name, module in _FRAMEWORKS]
    lines += _block("Available Frameworks", frameworks)
    mpi = mpi_built(verbose)
    lines += _block("Available Controllers", [("MPI", mpi), ("Gloo", True)])
    operations = [("NCCL", False), ("DDL", False), ("CCL", False), ("MPI", mpi), ("Gloo", True)]
    lines += _block("Available Tensor Operations", operations)
    lines += [
        "",
        "Gloo stands for Horovod's own engine over shared memory and TCP, which is always built in.",
    ]
    return "\n".join(lines)


def _block(title: str, entries: list[tuple[str, bool]]) -> list[str]:
    return ["", f"{title}:", *(f"    [{'X' if present else ' '}] {name}" for name, present in entries)]


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _details(name: str, module: str) -> str:
    if not _has(module):
        return f"{name}: the package {module} is not installed"
    if not _has(f"horovod.{module}"):
        return f"{name}: {module} is installed, but this version of Horovod has no horovod.{module}"
    try:
        return f"{name}: {module} {importlib.metadata.version(module)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{name}: {module} is installed, version unknown"


def _library() -> str:
    library = Path(horovod.__file__).with_name("libhorovod.so")
    return f"Engine: {library}" + ("" if library.exists() else " is missing: install Horovod again")
