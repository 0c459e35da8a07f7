"""Tests that pages name are there, and can be run by the names that stand there."""

from __future__ import annotations

import re
import subprocess
import sys

from util_packages import needs
from util_paths import ROOT, TESTS

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *TESTS.rglob("*.md")]
TEXT = "\n".join(page.read_text() for page in PAGES)
# As pytest takes them: tests/x.py::test_y, perhaps with brackets.
IDS = sorted(set(re.findall(r"\btests/[\w/]+\.py::[\w:]+(?:\[[\w.,-]+\])?", TEXT)))


def missing(*ids: str) -> list[str]:
    """Those of the ids that pytest does not know."""
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-n", "0"]
    done = subprocess.run(
        [*words, "-m", "slow or not slow", *ids],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    output = done.stdout + done.stderr
    unknown = re.findall(r"not found: (\S+)", output)
    assert bool(unknown) == (done.returncode != 0) and not re.search("^ERROR tests", output, re.MULTILINE), (
        output
    )
    return [each.removeprefix(f"{ROOT}/") for each in unknown]


def test_named_tests_can_be_run() -> None:
    needs("tensorflow", "torch", "tf_keras", "mpi4py", "jax", "lightning")
    assert len(IDS) > 60
    invented = "tests/docs/test_named_tests.py::test_that_nobody_has_written"
    assert missing(*IDS, invented) == [invented]


def test_named_files_exist() -> None:
    paths = set(re.findall(r"(?<![\w/])(?:tests|csrc/tests)/[\w/]+(?:\.\w+)?", TEXT))
    assert len(paths) > 40
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
