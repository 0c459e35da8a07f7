"""Which part of the package may import which: adapters, common, bootstrap, sockets, always downwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from util_paths import ROOT

# A part is a module or a package with all that is in it, unless that is a part itself. Everybody may import
# the errors, the version (the package itself), and the table of what is absent.
EVERYBODYS = {"horovod", "horovod.errors", "horovod._absent"}

_BOTTOM = {"horovod._net"}
_BOOTSTRAP = {"horovod._bootstrap", *_BOTTOM}
_COMMON = {"horovod.common", "horovod._core", "horovod._figures", *_BOOTSTRAP}
_NUMPY = {"horovod.numpy", *_COMMON}
_BASE = {
    "horovod.runner.processes",
    "horovod.runner.processors",
    "horovod.runner.package_path",
    "horovod.runner.payload",
    "horovod.runner.ssh",
    "horovod.runner.jobs",
}
_PLAN = {"horovod.runner.plan", "horovod.runner.host_survey", *_BASE, *_BOOTSTRAP}
_LAUNCHER = {"horovod.runner.launcher", "horovod.runner.agent", *_PLAN}
_PROGRAMS = {"horovod.runner.mpirun", "horovod.runner.jsrun", "horovod.runner.lsf", "horovod.runner.kubexec"}
_ELASTIC = {"horovod.runner.elastic", *_LAUNCHER}
_FUNCTION = {"horovod.runner.function", *_PROGRAMS, *_ELASTIC}
_TOOLS = {"horovod.runner.doctor", "horovod.runner.dashboard", "horovod.runner.top", "horovod.timeline"}
_CLI = {"horovod.runner.cli", *_TOOLS, *_FUNCTION, *_COMMON}

LAW: dict[str, set[str]] = {
    "horovod": {"horovod.runner.function"},  # horovod.run, when it is asked for
    "horovod.errors": set(),
    "horovod._absent": set(),
    "horovod._abi": set(),
    "horovod._core_types": set(),
    "horovod._core": {"horovod._abi", "horovod._core_types"},
    "horovod._net": set(),
    "horovod._figures": set(),
    "horovod._bootstrap": _BOTTOM,
    "horovod.common": _COMMON,
    "horovod.data": {"horovod.common"},
    "horovod.timeline": set(),
    "horovod.elastic": set(),
    "horovod.numpy": _COMMON,
    "horovod.torch": _COMMON,
    "horovod.mxnet": _COMMON,
    "horovod.jax": _COMMON,
    "horovod.lightning": {"horovod.torch", "horovod.common"},
    "horovod.tensorflow": _NUMPY,
    "horovod._keras": {"horovod.torch", "horovod.tensorflow", "horovod.jax", *_NUMPY},
    "horovod.keras": {"horovod._keras", *_COMMON},
    "horovod.tensorflow.keras": {"horovod._keras", "horovod.tensorflow", *_COMMON},
    "horovod.bench": {*_NUMPY},
    "horovod.runner": {"horovod.runner.function"},
    "horovod.runner.processes": set(),
    "horovod.runner.processors": set(),
    "horovod.runner.package_path": set(),
    "horovod.runner.payload": set(),
    "horovod.runner.ssh": set(),
    "horovod.runner.jobs": {"horovod._figures"},
    "horovod.runner.doctor": _BASE,
    "horovod.runner.dashboard": {"horovod._figures"},
    "horovod.runner.top": {"horovod._figures", *_LAUNCHER},
    "horovod.runner.host_survey": _BOOTSTRAP,
    "horovod.runner.plan": _PLAN,
    "horovod.runner.agent": _PLAN,
    "horovod.runner.launcher": _LAUNCHER,
    "horovod.runner.elastic": _ELASTIC,
    "horovod.runner.elastic.settings": {"horovod.runner.common", *_ELASTIC},
    "horovod.runner.kubexec": set(),
    "horovod.runner.lsf": _PLAN,
    "horovod.runner.mpirun": _PLAN,
    "horovod.runner.jsrun": {*_PLAN, *_PROGRAMS, "horovod.common"},
    "horovod.runner.function": _FUNCTION,
    "horovod.runner.cli": _CLI,
    # The names that users import.
    "horovod.runner.launch": _CLI,
    "horovod.runner.common": {"horovod.runner.common", "horovod.runner.util", *_CLI},
    "horovod.runner.util": set(),
}

# Asked for by the user's own choice, when it comes: file -> what it loads.
LATE = {"horovod/tensorflow/optimizer.py": "horovod._keras.optimizer.distribute"}


def part_of(module: str) -> str:
    """The part that a module, or a name in one, belongs to."""
    words = module.split(".")
    return next(name for length in range(len(words), 0, -1) if (name := ".".join(words[:length])) in LAW)


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of all that is imported, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "import_module"
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value)


def broken(file: Path, text: str) -> list[str]:
    """What a file imports against the law."""
    path = file.relative_to(ROOT)
    words = [*path.with_suffix("").parts]
    mine = part_of(".".join(words[:-1] if words[-1] == "__init__" else words))
    allowed = {mine, *EVERYBODYS, *LAW[mine]}
    found: list[str] = []
    for line, name in imported(ast.parse(text)):
        if not f"{name}.".startswith("horovod.") or LATE.get(str(path)) == name:
            continue
        other = part_of(name)
        # `from horovod.runner import ssh` names a part; `from horovod.runner import run` what is in one.
        if other not in allowed:
            found.append(f"{path}:{line}: {mine} must not import {other} ({name})")
    return found


FILES = sorted((ROOT / "horovod").rglob("*.py"))


def test_every_import_points_down() -> None:
    problems = [text for file in FILES for text in broken(file, file.read_text())]
    assert not problems, "\n".join(problems)


def test_every_package_has_its_place() -> None:
    packages = {path.parent.name for path in (ROOT / "horovod").glob("*/__init__.py")}
    assert {f"horovod.{name}" for name in packages} <= LAW.keys()


def test_the_law_has_no_circles() -> None:
    above: dict[str, set[str]] = {
        part: {each for each in below if each != part} for part, below in LAW.items()
    }
    above["horovod"] = set()  # horovod.run is loaded late
    while above:
        lowest = {part for part, below in above.items() if not below & above.keys()}
        assert lowest, f"these import each other: {sorted(above)}"
        above = {part: below for part, below in above.items() if part not in lowest}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("horovod/_net/x.py", "from horovod._bootstrap import identity"),
        ("horovod/_bootstrap/x.py", "def f():\n    from horovod.runner.cli import flags"),
        ("horovod/_bootstrap/world/x.py", "from horovod.common.exceptions import HorovodInternalError"),
        ("horovod/common/x.py", "import horovod.numpy"),
        ("horovod/torch/x.py", "from horovod import tensorflow"),
        ("horovod/runner/agent/x.py", "from horovod.runner.launcher.job import Job"),
        ("horovod/numpy/x.py", "import importlib\nimportlib.import_module('horovod.torch')"),
    ],
)
def test_a_breach_is_found(file: str, text: str) -> None:
    assert len(broken(ROOT / file, text)) == 1
