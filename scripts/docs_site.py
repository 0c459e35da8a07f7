"""Hooks of MkDocs: what the site has besides docs/, and what it must not have.

The pages at the top of the tree and the programs in examples/ become pages of the site. Links are written
for readers of the tree; here they are led to where the same file is on the site. Nothing may be loaded from
another host: the site is for machines without a way out, too.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# What is outside of docs/: its place on the site. README.md would be taken for an index there.
TOP = {
    "README.md": "overview.md",
    "tests/README.md": "testing.md",
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")},
}
LANGUAGES = {".py": "python", ".sh": "bash", "": "text"}
LINK = re.compile(r"(?P<before>\]\(|(?:src|srcset)=\")(?P<path>[^)\s\"#:]+)(?P<after>[#)\"])")
PICTURE = re.compile(r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img ([^>]*)src="([^"]+)">\s*</picture>')


def programs() -> list[Path]:
    """The files of examples/, relative to the tree."""
    files = [path.relative_to(ROOT) for path in sorted((ROOT / "examples").rglob("*")) if path.is_file()]
    files.sort(key=lambda path: {"tutorial": 0, "imagenet": 2, "common": 3}.get(path.parts[1], 1))
    return [path for path in files if path.suffix in LANGUAGES and "__pycache__" not in path.parts]


def summary(program: Path) -> str:
    """What a program says of itself in its first line."""
    text = (ROOT / program).read_text()
    if program.suffix == ".py":
        words = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
    else:
        comment = re.search(r"^((?:# (?!shellcheck).*\n)+)", text, flags=re.MULTILINE)
        words = re.split(r"(?<=\.) ", " ".join(comment[1].split("\n# ")).strip("# \n"))[0] if comment else ""
    return " ".join(words.split()).rstrip(":").replace("[", "\\[")


def program_page(program: Path) -> str:
    """A page that shows a program."""
    text = (ROOT / program).read_text()
    return f"# `{program}`\n\n````{LANGUAGES[program.suffix]}\n{text}````\n"


def programs_page() -> str:
    """A page that lists the programs by directory."""
    lines = ["# Examples", "", "The programs in `examples/`, each with its source."]
    directory = None
    for program in programs():
        if program.parts[1] != directory and len(program.parts) > 2:
            directory = program.parts[1]
            lines += ["", f"## {directory}", ""]
        elif len(program.parts) == 2:
            lines += ["", f"## {program.stem}", ""]
        place = site_path(program.as_posix())
        name = posixpath.join(*program.parts[2:]) if len(program.parts) > 2 else program.name
        lines.append(f"- [`{name}`]({place}) {summary(program)}".rstrip())
    return "\n".join(lines) + "\n"


def site_path(path: str) -> str:
    """Where the site has a file or directory of the tree; ValueError where it has not."""
    if path in TOP:
        return TOP[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "examples" or (path.startswith("examples/") and (ROOT / path).is_dir()):
        directory = path.partition("/")[2].partition("/")[0]
        return "examples.md" + (f"#{directory}" if directory else "")
    if path.startswith("examples/"):
        return f"{path}.md"
    raise ValueError(f"{path} is not on the site: scripts/docs_site.py can take it there")


def tree_path(page: str) -> str:
    """Where the tree has a page of the site."""
    return next((source for source, place in TOP.items() if place == page), f"docs/{page}")


def site_links(markdown: str, page: str) -> str:
    """The text of a page with its links to files of the tree led to the site."""
    here = posixpath.dirname(tree_path(page))

    def lead(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(here, link["path"]))
        if not (ROOT / path).exists():
            return link[0]  # MkDocs says so
        place, _, anchor = site_path(path).partition("#")
        place = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return link["before"] + place + (f"#{anchor}" if anchor else "") + link["after"]

    return LINK.sub(lead, markdown)


def themed(markdown: str) -> str:
    """Pictures for light and dark pages, as the theme's switch wants them."""
    return PICTURE.sub(
        r'<img \2src="\3#only-light" loading="lazy"><img \2src="\1#only-dark" loading="lazy">', markdown
    )


class _Loads(HTMLParser):
    """Collects what a page loads, as opposed to what it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag != "a":
            self.found += [
                value
                for name, value in attributes
                if value and not name.startswith("xmlns") and re.match(r"(https?:)?//", value)
            ]


def foreign(path: Path) -> Iterator[str]:
    """Addresses of other hosts that a page or style sheet loads from."""
    text = path.read_text()
    if path.suffix == ".css":
        yield from re.findall(r"url\([\"']?((?:https?:)?//[^)]+)", text)
        yield from re.findall(r"@import [\"']((?:https?:)?//[^\"']+)", text)
    else:
        parser = _Loads()
        parser.feed(text)
        yield from parser.found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    from mkdocs.structure.files import File

    for source, place in TOP.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, "examples.md", content=programs_page()))
    for program in programs():
        page = File.generated(config, site_path(program.as_posix()), content=program_page(program))
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads the links, and doubles the pictures."""
    if page.file.src_uri.startswith("examples"):
        return markdown
    return themed(site_links(markdown, page.file.src_uri))


def breakable(html: str) -> str:
    """Long names in tables may break after their parts instead of anywhere."""

    def parts(code: re.Match[str]) -> str:
        return "<code>" + re.sub(r"(_|/|::)", r"\1<wbr>", code[1]) + "</code>"

    def cell(found: re.Match[str]) -> str:
        return re.sub(r"<code>([^<]*)</code>", parts, found[0])

    return re.sub(r"<td.*?</td>", cell, html, flags=re.DOTALL)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Makes tables fit."""
    return breakable(html)


def on_post_build(config: MkDocsConfig) -> None:
    """Fails where the site would load something from another host."""
    from mkdocs.exceptions import PluginError

    site = Path(config.site_dir)
    found = {
        f"{path.relative_to(site)} loads {address}"
        for path in site.rglob("*")
        if path.suffix in (".html", ".css")
        for address in foreign(path)
    }
    if found:
        raise PluginError("\n".join(sorted(found)))
