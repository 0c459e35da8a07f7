"""The pages: links lead somewhere, all are in the navigation."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from horovod.runner.launch import parse_args
from horovod.runner.launcher import event_log
from horovod.timeline.records import ALGORITHMS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import docs_site  # noqa: E402

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")])


def prose(page: Path) -> str:
    """The page without blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What headings are called in links."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Path and anchor of each link and picture."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text):
        path, _, anchor = "".join(target).partition("#")
        yield path, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        assert ":" not in path, f"{path}: nothing is to be looked for outside of the tree"
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if anchor:
            assert anchor in anchors(target), (path, anchor)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_prose_has_at_most_100_columns(page: Path) -> None:
    if page.name == "benchmarks.md":
        pytest.skip("programs write it")
    no_prose = ("|", "<img", "  <img", "    ")  # tables, pictures, code
    assert not [
        text for text in prose(page).splitlines() if len(text) > 100 and not text.startswith(no_prose)
    ]


def test_every_page_is_in_the_navigation() -> None:
    """MkDocs says so, too, but not everybody has it."""
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r"[\w/-]+\.md", navigation))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert named == pages | set(docs_site.TOP.values()) | {"examples.md"}


def files() -> list[str]:
    """What pages may speak of, relative to the tree."""
    tops = ("csrc", "horovod", "tests", "examples", "benchmarks", "scripts", ".github", ".ci")
    paths = [path for top in tops for path in (ROOT / top).rglob("*") if path.is_file()]
    return [path.relative_to(ROOT).as_posix() for path in [*paths, *ROOT.glob("*.*")]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_named_files_exist(page: Path) -> None:
    """Whole paths, and their ends: `engine/negotiation.cc`."""
    there = files()
    for name in re.findall(r"`([\w.][\w./-]*\.(?:cc|h|py|sh))(?:::\w+)?`", prose(page)):
        if "/" in name or name.endswith((".cc", ".h")):
            assert any(f"/{path}".endswith(f"/{name.removeprefix('./')}") for path in there), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_named_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for words in re.findall(r"(?:`|^)make ([a-z][\w -]*)", page.read_text(), flags=re.MULTILINE):
        target = words.split()[0]
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def commands(page: Path) -> Iterator[list[str]]:
    """The words after horovodrun in blocks of code and in quotation."""
    text = page.read_text().replace("\\\n", " ")
    for line in re.findall(
        r"^(?:    )?(?:\$ )?(?:[A-Z_]+=\S+ )*horovodrun (.*)$|`horovodrun (.*?)`", text, flags=re.MULTILINE
    ):
        words = shlex.split("".join(line), comments=True)
        if "…" not in words[0]:
            yield ["2" if word == "N" else word for word in words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_are_accepted(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in commands(page):
        try:
            parse_args(words)
        except SystemExit as end:
            assert not end.code, (words, capsys.readouterr().err)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_programs_can_be_read(page: Path) -> None:
    for program in re.findall(r"^```python\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL):
        ast.parse(program)


def test_all_events_are_in_the_table() -> None:
    """Those that a job's log may have, each with what it says."""
    page = (ROOT / "docs" / "observability.md").read_text()
    table = page.partition("| Event | When")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]
    assert sorted(named) == sorted(event_log.NAMES)


def test_all_algorithms_are_named() -> None:
    page = (ROOT / "docs" / "timeline.md").read_text()
    assert [name for name in ALGORITHMS[1:] if f"`{name}`" not in page] == []
