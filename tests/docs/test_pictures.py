"""The pictures are those of the figures, and so are the README's numbers."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import draw_pictures  # noqa: E402


def test_pictures_are_current() -> None:
    drawn = dict(draw_pictures.pictures())
    assert {path for path in (ROOT / "docs" / "pictures").iterdir()} == set(drawn)
    for path, content in drawn.items():
        assert path.read_text() == content, f"{path.name}: python scripts/draw_pictures.py draws it anew"


def test_chart_has_every_figure() -> None:
    ratios = list(draw_pictures.ratios((ROOT / "docs" / "benchmarks.md").read_text()))
    assert {"gloo", "Open MPI", "DDP on gloo"} == {ratio.peer for ratio in ratios}
    assert len({ratio.work for ratio in ratios}) >= 8 and len(ratios) == len(set(ratios))


def test_figures_of_the_readme_are_measured() -> None:
    readme = " ".join((ROOT / "README.md").read_text().split())
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    ratios = list(draw_pictures.ratios(page))
    gloo = [round(ratio.value) for ratio in ratios if ratio.peer == "gloo"]
    assert f"{min(gloo)} to {max(gloo)} times Gloo's speed" in readme
    large = [
        ratio.value for ratio in ratios if ratio.peer == "Open MPI" and ratio.work in ("64 MiB", "128 MiB")
    ]
    assert (
        len(large) == 2
        and all(value >= 3 for value in large)
        and "three times Open MPI's from 64 MiB on" in readme
    )
    small, big = (f"{ratio.value:.2f}" for ratio in ratios if ratio.peer == "DDP on gloo")
    assert f"{small} and {big} times the steps per second" in readme
    assert f"{small} to {big} times the steps" in readme
    between = page.partition("<!-- links -->")[2].partition("<!-- /links -->")[0]
    used = [float(share) for share in re.findall(r"\| ([\d.]+)% \|", between)]
    assert f"{int(min(used))} to {int(max(used))} % of a 1 Gbit/s link" in readme
