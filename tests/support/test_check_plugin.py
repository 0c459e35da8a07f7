"""Checks as tests: their ids, their selection, and what is said of those that fail, crash or hang."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_launch import Check, Launch, Result, checks_of
from util_packages import needs
from util_paths import SUPPORT

CHECKS = """
import os
import time

import horovod.numpy as hvd
from util_expect import cases, skip

NAMES = ["red", "blue"]


def note(text: str) -> None:
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{text} {hvd.rank()}\\n")


def check_well() -> None:
    note("well")


@cases(*NAMES, "green")
def check_colour(name: str) -> None:
    note(name)
    print(f"we do not like {name}")
    assert name != "blue", "not that one"


def check_on_one_rank_only() -> None:
    if hvd.rank() == 1:
        raise ValueError("rank 1 does not like it")


def check_left_out() -> None:
    skip("nobody wants it")


def check_left_out_by_one() -> None:
    if hvd.rank() == 1:
        skip("rank 1 does not want it")


def check_dies() -> None:
    hvd.barrier()
    if hvd.rank() == 1:
        os._exit(7)
    time.sleep(60)


def check_hangs() -> None:
    if hvd.rank() == 1:
        time.sleep(60)


def check_after() -> None:
    note("after")
"""
LAUNCHES = """
from check_launch import Launch

NOTES = {notes!r}
WELL = ["well", "colour", "on_one_rank_only", "left_out", "left_out_by_one", "after"]


def launch(name: str, *checks: str, **more: object) -> Launch:
    return Launch(name, 2, [f"checks_some.py::check_{{each}}" for each in checks], {{"NOTES": NOTES}}, **more)


LAUNCHES = [
    launch("two", *WELL),
    launch("dying", "well", "dies", "after"),
    launch("hanging", "well", "hangs", "after", timeout=8),
    launch("wanting", "well", needs=["no_such_package"]),
    launch("slow-two", "after", slow=True),
]
"""


@pytest.fixture
def notes(pytester: pytest.Pytester) -> Path:
    """A file in which the checks write their names, in a directory with some checks."""
    file = pytester.path / "notes"
    pytester.makeini(f"[pytest]\npythonpath = {SUPPORT}\nmarkers = slow")
    pytester.makeconftest('pytest_plugins = ["check_plugin"]')
    room = pytester.mkdir("room")
    (room / "checks_some.py").write_text(CHECKS)
    (room / "launches.py").write_text(LAUNCHES.format(notes=str(file)))
    return file


def outcomes(result: pytest.RunResult) -> dict[str, str]:
    """By id, without the file."""
    found = {}
    for line in result.outlines:
        if line.startswith("room/checks_some.py::"):
            identity, state = line.split("::", 1)[1].split()[:2]
            found[identity] = state
    return found


def section(result: pytest.RunResult, identity: str) -> str:
    """What is said about a test that failed."""
    text = result.stdout.str()
    _, _, behind = text.partition(f" {identity} ___")
    assert behind, text
    return behind.partition("\n___")[0]


def test_each_check_is_a_test(pytester: pytest.Pytester, notes: Path) -> None:
    result = pytester.runpytest_subprocess("-v", "-rs", "-k", "two and not slow")
    assert outcomes(result) == {
        "check_well[two]": "PASSED",
        "check_colour[two-red]": "PASSED",
        "check_colour[two-blue]": "FAILED",
        "check_colour[two-green]": "PASSED",
        "check_on_one_rank_only[two]": "FAILED",
        "check_left_out[two]": "SKIPPED",
        "check_left_out_by_one[two]": "SKIPPED",
        "check_after[two]": "PASSED",
    }
    both = section(result, "check_colour[two-blue]")
    assert "Ranks 0, 1: AssertionError: not that one\n" in both and both.count("Traceback") == 1
    one = section(result, "check_on_one_rank_only[two]")
    assert "Rank 1: ValueError: rank 1 does not like it\nTraceback" in one
    assert "checks_some.py" in one and "in check_on_one_rank_only" in one, "the traceback is the check's"
    assert "check_worker.py" not in one
    result.stdout.re_match_lines([r"SKIPPED .*nobody wants it", r"SKIPPED .*rank 1: rank 1 does not want it"])
    words = ["well", "red", "blue", "green", "after"]
    assert sorted(notes.read_text().splitlines()) == sorted(
        f"{word} {rank}" for word in words for rank in (0, 1)
    )


def test_only_what_is_selected_is_run(pytester: pytest.Pytester, notes: Path) -> None:
    checks = pytester.path / "room" / "checks_some.py"
    checks.write_text(
        f"import sys\nassert 'pytest' not in sys.modules, 'imported by pytest'\n{checks.read_text()}"
    )
    result = pytester.runpytest_subprocess("room/checks_some.py::check_colour[two-green]")
    result.assert_outcomes(passed=1)
    assert set(notes.read_text().split()) == {"green", "0", "1"}
    notes.unlink()
    result = pytester.runpytest_subprocess("room/checks_some.py::check_well", "-k", "two")
    result.assert_outcomes(passed=1, deselected=3)
    assert set(notes.read_text().split()) == {"well", "0", "1"}


def test_the_last_failures_can_be_repeated(pytester: pytest.Pytester, notes: Path) -> None:
    result = pytester.runpytest_subprocess("-k", "two and (well or colour)")
    result.assert_outcomes(passed=3, failed=1, deselected=12)
    notes.unlink()
    result = pytester.runpytest_subprocess("--lf", "-v")
    assert outcomes(result) == {"check_colour[two-blue]": "FAILED"}
    assert "not like blue" in result.stdout.str(), "alone, its output is shown"
    assert set(notes.read_text().split()) == {"blue", "0", "1"}


def run_until(pytester: pytest.Pytester, launch: str, culprit: str) -> tuple[pytest.RunResult, str]:
    """A launch that a check ends, and what is said of that check."""
    result = pytester.runpytest_subprocess("-v", "-k", launch)
    assert outcomes(result) == {
        f"check_well[{launch}]": "PASSED",
        f"{culprit}[{launch}]": "FAILED",
        f"check_after[{launch}]": "FAILED",
    }
    return result, section(result, f"{culprit}[{launch}]")


def test_a_rank_dies(pytester: pytest.Pytester, notes: Path) -> None:
    result, text = run_until(pytester, "dying", "check_dies")
    assert "in this check" in text or "did not come out of it" in text
    assert "output of the launch dying" in text and "rank 1" in text
    assert "Not run: the launch ended with code" in section(result, "check_after[dying]")
    assert "in checks_some.check_dies." in section(result, "check_after[dying]")


def test_a_check_that_hangs(pytester: pytest.Pytester, notes: Path) -> None:
    result, text = run_until(pytester, "hanging", "check_hangs")
    assert "The launch did not end within 8 s while rank 1 was in this check." in text
    assert "in check_hangs" in text, "where it was"
    assert "Not run: the launch did not end within 8 s" in section(result, "check_after[hanging]")


def test_two_workers(pytester: pytest.Pytester, notes: Path) -> None:
    """All checks of a launch are run by the same one, though they are in two files."""
    needs("xdist")
    room = pytester.path / "room"
    check = (
        "import os\n\ndef check_{0}():\n    with open({1!r}, 'a') as file:\n        file.write('{0}\\n')\n"
    )
    for name in ("one", "two", "three"):
        (room / f"checks_{name}.py").write_text(check.format(name, str(notes)))
    (room / "checks_some.py").unlink()
    (room / "launches.py").write_text(
        "from check_launch import Launch\n"
        "LAUNCHES = [\n"
        "    Launch('a', 2, ['checks_one.py', 'checks_two.py']),\n"
        "    Launch('a-b', 2, ['checks_three.py', 'checks_one.py']),\n"
        "]\n"
    )
    result = pytester.runpytest_subprocess("-n", "2", "--dist", "loadfile", "-v")
    result.assert_outcomes(passed=4)
    found = [line.split() for line in result.outlines if "PASSED room/checks_" in line]
    assert len({worker for worker, *_, identity in found if identity.endswith("[a]")}) == 1
    assert len({worker for worker, *_, identity in found if identity.endswith("[a-b]")}) == 1
    assert sorted(notes.read_text().split()) == ["one"] * 4 + ["three"] * 2 + ["two"] * 2


def test_what_is_missing(pytester: pytest.Pytester, notes: Path) -> None:
    result = pytester.runpytest_subprocess("-rs", "-k", "wanting")
    result.assert_outcomes(skipped=1, deselected=15)
    result.stdout.fnmatch_lines(["SKIPPED*needs no_such_package, which is not installed"])


def test_a_check_without_a_launch_is_an_error(pytester: pytest.Pytester, notes: Path) -> None:
    (pytester.path / "room" / "checks_forgotten.py").write_text("def check_this():\n    pass\n")
    result = pytester.runpytest_subprocess("room/checks_forgotten.py")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no launches.py runs check_this*"])


def test_checks_are_found_without_an_import(tmp_path: Path) -> None:
    file = tmp_path / "checks_some.py"
    file.write_text(f"import no_such_module\n{CHECKS}")
    found = [check.identity for check in checks_of(file)]
    assert found[:3] == [
        "checks_some.check_well",
        "checks_some.check_colour[red]",
        "checks_some.check_colour[blue]",
    ]
    assert len(found) == 10


def result_of(directory: Path, code: int | None, *ranks: str) -> Result:
    checks = [Check(Path("checks_x.py"), f"check_{name}") for name in "ab"]
    for rank, states in enumerate(ranks):
        lines = [
            f'{{"check": "{check.identity}", "state": "{state}", "text": "why"}}\n'
            for check, state in zip(checks, states.split(), strict=False)
        ]
        (directory / f"rank-{rank}").write_text("".join(lines))
    return Result(Launch("some", len(ranks), []), checks, code, "its output", directory)


@pytest.mark.parametrize(
    ("code", "ranks", "states", "words"),
    [
        (0, ["passed passed", "passed passed"], ["passed", "passed"], ""),
        (0, ["passed failed", "passed passed"], ["passed", "failed"], "Rank 0: why\nwhy"),
        (-11, ["passed passed", "passed passed"], ["passed", "failed"], "code -11 after its last check"),
        (1, ["passed passed", "passed"], ["passed", "failed"], "code 1 in checks_x.check_b"),
        (1, ["", ""], ["failed", "failed"], "before the first check"),
        (None, ["failed", "begun"], ["failed", "failed"], "did not end within 120 s in checks_x.check_a"),
        (0, ["skipped passed", "skipped passed"], ["skipped", "passed"], ""),
    ],
)
def test_verdicts(tmp_path: Path, code: int | None, ranks: list[str], states: list[str], words: str) -> None:
    result = result_of(tmp_path, code, *ranks)
    found = [result.verdict(Check(Path("checks_x.py"), f"check_{name}")) for name in "ab"]
    assert [each.state for each in found] == states
    assert words in found[1].text
