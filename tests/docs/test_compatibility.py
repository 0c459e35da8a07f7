"""docs/compatibility.md: each row has its proof; test_named_tests.py sees that it is one."""

from __future__ import annotations

import re

from util_paths import ROOT

PAGE = ROOT / "docs" / "compatibility.md"


def test_every_row_is_proven_or_says_why_not() -> None:
    rows = re.findall(r"^\| (.+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    rows = [row for row in rows if not set(row) <= set("-| ") and not row.startswith("Document says")]
    assert len(rows) > 20
    for row in rows:
        assert "`tests/" in row or "**no**" in row, row
