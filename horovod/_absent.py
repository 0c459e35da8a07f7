"""Modules of the original Horovod that are not there: importing one says what to use instead."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_LAUNCH = "use horovodrun, horovod.run() or horovod.runner.launch.run_commandline(), which start a whole job"

# With what is below them. A module that comes to exist is found first, whatever is written here.
ABSENT = {
    "horovod.ray": (
        "running on Ray is yet to come. Use horovodrun -H or horovod.run(func, hosts=...) on the machines of "
        "the cluster"
    ),
    "horovod.runner.common.service": _LAUNCH,
    "horovod.runner.driver": _LAUNCH,
    "horovod.runner.gloo_run": _LAUNCH,
    "horovod.runner.http": _LAUNCH,
    "horovod.runner.js_run": "use horovodrun --jsrun",
    "horovod.runner.mpi_run": "use horovodrun --mpi",
    "horovod.spark": (
        "running on Spark is yet to come. Let Spark write the data as Parquet files, and train with "
        "horovodrun -H or horovod.run(func, hosts=...)"
    ),
}


def sentence(module: str) -> str | None:
    """What to say about a module; None if it is not one of these."""
    for name, instead in ABSENT.items():
        if module == name or module.startswith(f"{name}."):
            return f"{module} is not there: {instead}"
    return None


def missing_attribute(module: str, name: str) -> AttributeError:
    """For a module's ``__getattr__``; submodules may be used without being imported."""
    return AttributeError(
        sentence(f"{module}.{name}") or f"module {module!r} has no attribute {name!r}", name=name
    )


def import_later(module: str, *submodules: str, **places: str) -> None:
    """Has names of a module imported when they are asked for: submodules, and what is in others, at
    `places`. Any other name that is missing is a missing_attribute().

    Not as a ``__getattr__`` that type checkers see: they find a misspelt name by themselves.
    """

    def find(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{module}.{name}")
        if name in places:
            return getattr(importlib.import_module(places[name]), name)
        raise missing_attribute(module, name)

    vars(sys.modules[module])["__getattr__"] = find


class _Finder:
    """Asked when nobody else has found a module."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        text = sentence(fullname)
        if text is not None:
            raise ImportError(text, name=fullname)
        return None


def install() -> None:
    """Once; ``import horovod`` does it."""
    if not any(getattr(finder, "__module__", "") == __name__ for finder in sys.meta_path):
        sys.meta_path.append(_Finder)
