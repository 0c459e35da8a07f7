"""docs/private-interfaces.md: each row has a test, its interfaces are in use, and no other is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from util_paths import ROOT

PAGE = (ROOT / "docs" / "private-interfaces.md").read_text()
ROWS = [re.split(r" \| ", row) for row in re.findall(r"^\| (`.+) \|$", PAGE, flags=re.MULTILINE)]
# Public in spite of their names.
PUBLIC = {"_exit", "_replace"}
PRIVATE_MODULE = re.compile(r"(tensorflow\.(python|compiler)|keras\.src|torch\._\w+)\b")


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith(("__", "_horovod")) and name not in PUBLIC


def annotations(tree: ast.AST) -> set[ast.AST]:
    """All that stands in annotations, which nobody evaluates."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if isinstance(part := getattr(node, field, None), ast.AST):
                found.update(ast.walk(part))
    return found


def given_names(tree: ast.AST) -> Iterator[str]:
    """Names that the package gives to something itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Dict):
            yield from (
                key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
            )


def used_names(tree: ast.AST) -> Iterator[str]:
    """Private attributes, and names and modules that come from outside of the package."""
    ignored = annotations(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr) and node not in ignored:
            yield node.attr
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant) and private(name.value):
                yield name.value
        elif isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith("horovod"):
            yield from (alias.name for alias in node.names if private(alias.name))
            if PRIVATE_MODULE.match(node.module):
                yield node.module


def test_each_has_a_test() -> None:
    """Which is there: test_named_tests.py."""
    assert len(ROWS) > 25
    for row in ROWS:
        assert re.fullmatch(r"`tests/[\w/]+\.py::[\w\[\]-]+`", row[3]), row


def test_interfaces_are_in_use() -> None:
    for row in ROWS:
        file = ROOT / row[1].strip("`")
        name = re.findall(r"`(.+?)`", row[0])[0]
        assert name in file.read_text(), row


def test_no_other_is_used() -> None:
    trees = [ast.parse(file.read_text()) for file in (ROOT / "horovod").rglob("*.py")]
    ours = {name for tree in trees for name in given_names(tree)}
    foreign = {name for tree in trees for name in used_names(tree)} - ours
    assert "_post_accumulate_grad_hooks" in foreign and "tensorflow.python.eager" in foreign
    assert {name for name in foreign if f"`{name}`" not in PAGE and f".{name}`" not in PAGE} == set()


def test_no_other_symbol_is_used() -> None:
    for file in (ROOT / "csrc").rglob("*.cc"):
        for symbol in re.findall(r'"(_ZN\w+)"', file.read_text()):
            assert symbol in PAGE, (file, symbol)
