"""docs/tutorial.md: its programs run, and its diffs are the differences between them."""

from __future__ import annotations

import difflib
import itertools
import json
import re
import sys
from pathlib import Path

import pytest
from examples_util import SEVERAL, figures, horovodrun, run
from util_packages import needs
from util_paths import EXAMPLES, ROOT

STEPS = sorted((EXAMPLES / "tutorial").glob("step*.py"))
PAGE = ROOT / "docs" / "tutorial.md"


def test_diffs_are_those_of_the_programs() -> None:
    shown = re.findall(r"```diff\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    expected = []
    for old, new in itertools.pairwise(STEPS):
        lines = difflib.unified_diff(
            old.read_text().splitlines(keepends=True), new.read_text().splitlines(keepends=True), n=1
        )
        expected.append("".join(list(lines)[2:]))
    assert shown == expected


def test_first_program_is_shown_whole() -> None:
    assert f"```python\n{STEPS[0].read_text()}```" in PAGE.read_text()


def test_commands_name_files_that_exist() -> None:
    named = set(re.findall(r"examples/tutorial/\w+\.py", PAGE.read_text()))
    assert named == {f"examples/tutorial/{step.name}" for step in STEPS}


@pytest.mark.parametrize(
    ("processes", "numbers"), [pytest.param(1, (0, 1, 2), marks=pytest.mark.slow), (2, (3, 4))]
)
def test_programs_run(tmp_path: Path, processes: int, numbers: tuple[int, ...]) -> None:
    needs("tensorflow", "sklearn")
    lines = json.dumps([[str(STEPS[number])] for number in numbers])
    if processes == 1:  # as the reader starts the first
        code, output = run(sys.executable, SEVERAL, lines, cwd=tmp_path)
    else:
        code, output = horovodrun("-np", str(processes), sys.executable, SEVERAL, lines, cwd=tmp_path)
    assert code == 0, output
    found = figures(r"Test accuracy ([\d.]+)%", output)
    assert len(found) == len(numbers) and min(found) > 85, output
    assert "[1]<stdout>" not in output
    assert (tmp_path / "digits.keras").exists()
