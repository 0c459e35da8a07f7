"""A benchmark's own section of docs/benchmarks.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Section:
    """What stands between the markers `<!-- name -->` and `<!-- /name -->` is replaced by each run."""

    name: str
    heading: str  # for the first time: how the section begins

    def write(self, text: str) -> None:
        """Puts `text` between the markers, or at the end of the page if it has none."""
        begin, end = f"<!-- {self.name} -->", f"<!-- /{self.name} -->"
        page = PAGE.read_text(encoding="utf-8")
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            before, after = f"{page.rstrip()}\n{self.heading}\n", "\n"
        PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
