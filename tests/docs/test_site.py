"""The hooks of the site: links, examples, and nothing from other hosts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import docs_site  # noqa: E402


def test_links_are_led_to_the_site() -> None:
    assert docs_site.site_links("[a](docs/design.md#parts)", "overview.md") == "[a](design.md#parts)"
    assert docs_site.site_links("[a](../../README.md)", "api/index.md") == "[a](../overview.md)"
    assert docs_site.site_links("[a](../examples/tutorial)", "tutorial.md") == "[a](examples.md#tutorial)"
    program = docs_site.site_links("[a](../examples/keras/practice.py)", "practice.md")
    assert program == "[a](examples/keras/practice.py.md)"
    assert docs_site.site_links("[a](nowhere.md)", "practice.md") == "[a](nowhere.md)"
    with pytest.raises(ValueError, match=r"setup\.sh is not on the site"):
        docs_site.site_links("[a](../benchmarks/setup.sh)", "benchmarks.md")


def test_examples_say_what_they_are() -> None:
    for program in docs_site.programs():
        assert docs_site.summary(program) or program.name == "hosts", program


def test_what_comes_from_other_hosts_is_found(tmp_path: Path) -> None:
    page, sheet = tmp_path / "page.html", tmp_path / "sheet.css"
    page.write_text(
        '<a href="https://one.example"></a><script src="//two.example/x.js"></script><img src="x.png">'
        '<svg xmlns="http://www.w3.org/2000/svg"></svg>'
        '<link rel="stylesheet" href="https://three.example/x.css"/>'
    )
    sheet.write_text("@import 'https://four.example/x.css'; p { background: url(//five.example/x) }")
    assert list(docs_site.foreign(page)) == ["//two.example/x.js", "https://three.example/x.css"]
    assert list(docs_site.foreign(sheet)) == ["//five.example/x", "https://four.example/x.css"]


def test_names_in_tables_break_after_their_parts() -> None:
    html = "<code>A_B</code><td><code>A_B</code> a_b <code>tests/x.py::y</code></td>"
    broken = "<td><code>A_<wbr>B</code> a_b <code>tests/<wbr>x.py::<wbr>y</code></td>"
    assert docs_site.breakable(html) == f"<code>A_B</code>{broken}"


def test_docstrings_become_lists_of_arguments() -> None:
    pytest.importorskip("griffe")
    from docs_reference import markdown

    listed = markdown("As here::\n\n    code\n\n`a`: one,\nmore\n")
    assert listed == "As here:\n\n    code\n\n- `a`: one,\nmore\n"
    assert markdown("Text.\n`a`: one\n`b`, `c`: two") == "Text.\n\n- `a`: one\n- `b`, `c`: two"
