"""A few shapes of SVG, in the colours of a light or a dark page."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', Helvetica, Arial, sans-serif"


@dataclass(frozen=True)
class Theme:
    """Colours of a picture without a background of its own, for pages that are light or dark."""

    name: str
    text: str
    faint: str  # what is there to be noticed last: grids, lanes
    muted: str  # less important text
    ours: str
    others: tuple[str, str, str]


LIGHT = Theme("light", "#1f2328", "#d0d7de", "#59636e", "#0969da", ("#9a6700", "#8250df", "#1a7f37"))
DARK = Theme("dark", "#e6edf3", "#3d444d", "#9198a1", "#4493f8", ("#d29922", "#ab7df8", "#3fb950"))
THEMES = (LIGHT, DARK)


@dataclass
class Picture:
    """Shapes, one after the other, with a title and description for those who can't see them."""

    width: int
    height: int
    title: str
    description: str
    shapes: list[str] = field(default_factory=list)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        colour: str,
        *,
        size: int = 14,
        anchor: str = "start",
        weight: int = 400,
        mono: bool = False,
    ) -> None:
        """Words on the base line y; x is their start, middle or end."""
        family = ' font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"' if mono else ""
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" fill="{colour}" font-size="{size}" font-weight="{weight}" '
            f'text-anchor="{anchor}"{family}>{escape(words)}</text>'
        )

    def bar(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: str,
        *,
        opacity: float = 1,
        radius: float = 4,
    ) -> None:
        """A filled rectangle."""
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" '
            f'fill="{colour}" fill-opacity="{opacity:g}"/>'
        )

    def line(
        self,
        points: list[tuple[float, float]],
        colour: str,
        *,
        width: float = 1,
        dashes: str = "",
        ends: str = "",
    ) -> None:
        """A line through the points; ends: "end" or "both" have an arrow head."""
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.shapes.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashed}/>'
        )
        if ends:
            self._head(points[-2], points[-1], colour)
        if ends == "both":
            self._head(points[1], points[0], colour)

    def _head(self, before: tuple[float, float], tip: tuple[float, float], colour: str) -> None:
        dx, dy = tip[0] - before[0], tip[1] - before[1]
        length = (dx * dx + dy * dy) ** 0.5
        dx, dy = dx / length, dy / length
        base = (tip[0] - 10 * dx, tip[1] - 10 * dy)
        corners = [tip, (base[0] - 5 * dy, base[1] + 5 * dx), (base[0] + 5 * dy, base[1] - 5 * dx)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self.shapes.append(f'<polygon points="{points}" fill="{colour}"/>')

    def number(self, x: float, y: float, number: int, colour: str, ink: str) -> None:
        """A number in a disc."""
        self.shapes.append(f'<circle cx="{x:g}" cy="{y:g}" r="11" fill="{colour}"/>')
        self.text(x, y + 4.5, str(number), ink, size=13, anchor="middle", weight=700)

    def svg(self) -> str:
        """The file."""
        shapes = "\n".join(self.shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" font-family="{escape(FONT)}">\n'
            f"<title>{escape(self.title)}</title>\n<desc>{escape(self.description)}</desc>\n"
            f"{shapes}\n</svg>\n"
        )
