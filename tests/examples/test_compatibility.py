"""docs/compatibility.md: every test that it names exists, and the older forms it speaks of behave so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from examples_util import ROOT
from util_launch import run_checks

PAGE = ROOT / "docs" / "compatibility.md"


def test_named_tests_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text())
    assert len(named) > 20
    for file, function in named:
        assert re.search(rf"^def {function}\(", (ROOT / file).read_text(), flags=re.MULTILINE), (
            file,
            function,
        )


def test_every_row_is_proven_or_says_why_not() -> None:
    rows = re.findall(r"^\| (.+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    rows = [row for row in rows if not set(row) <= set("-| ") and not row.startswith("Document says")]
    assert len(rows) > 20
    for row in rows:
        assert "`tests/" in row or "**no**" in row, row


@pytest.mark.parametrize("checks", ["checks_older_forms.py", "checks_older_graph.py"])
def test_older_forms(checks: str) -> None:
    pytest.importorskip("tf_keras")
    run_checks(2, Path(__file__).with_name(checks), timeout=240, TF_USE_LEGACY_KERAS="1")
