"""A picture of an elastic job that grows and shrinks: a row for each slot, a bar for each process."""

from __future__ import annotations

from html import escape

from horovod.elastic.history import History

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 960, 150, 20, 64, 26
_STEPS = 30  # so high is the line of the number of ranks
# One colour for each process, over and over; readable on white and on black.
_COLOURS = ("#2f81f7", "#e3772a", "#2da44e", "#a371f7", "#d4457c", "#0f9aa8", "#b58900", "#6e7781")


def drawn(history: History) -> str:
    """The SVG."""
    seconds = max(history.end - history.start, 0.001)
    scale = (_WIDTH - _LEFT - _RIGHT) / seconds
    bottom = _TOP + _STEPS + 16 + _ROW * len(history.slots)
    height = bottom + 34 + 18 * len(history.worlds) + 10

    def x(time: float) -> float:
        return round(_LEFT + (time - history.start) * scale, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="13" role="img">',
        f"<title>{escape(_title(history))}</title>",
        "<style>text{fill:#1f2328}.m{fill:#656d76}.g{stroke:#d0d7de}rect.p{fill:#fff}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.m{fill:#8b949e}.g{stroke:#30363d}"
        "rect.p{fill:#0d1117}}</style>",
        f'<rect class="p" width="{_WIDTH}" height="{height}"/>',
        f'<text x="16" y="28" font-size="16" font-weight="600">{escape(_title(history))}</text>',
        f'<text class="m" x="{_LEFT - 10}" y="{_TOP + _STEPS - 4}" text-anchor="end">ranks</text>',
    ]
    most = max(world.size for world in history.worlds)
    path: list[str] = []
    for world in history.worlds:
        y = round(_TOP + _STEPS * (1 - world.size / most), 1)
        path.append(f"H{x(world.start)} V{y}" if path else f"M{x(world.start)} {y}")
        parts.append(
            f'<line class="g" x1="{x(world.start)}" x2="{x(world.start)}" y1="{_TOP}" y2="{bottom}"/>'
            f'<text class="m" x="{x(world.start) + 4}" y="{y - 5}" font-size="11">{world.size}</text>'
        )
    path.append(f"H{x(history.end)}")
    parts.append(f'<path d="{" ".join(path)}" fill="none" stroke="#2f81f7" stroke-width="2"/>')
    for row, slot in enumerate(history.slots):
        y = _TOP + _STEPS + 16 + row * _ROW
        parts.append(
            f'<text x="{_LEFT - 10}" y="{y + 17}" text-anchor="end">{escape(slot[0])}[{slot[1]}]</text>'
        )
        for each in history.stretches:
            if each.slot == slot:
                width = max(x(each.end) - x(each.start) - 1, 1)
                colour = _COLOURS[(each.worker - 1) % len(_COLOURS)]
                parts.append(
                    f'<rect x="{x(each.start)}" y="{y + 3}" width="{width:.1f}" height="{_ROW - 6}" rx="3" '
                    f'fill="{colour}"><title>process {each.worker}, rank {each.rank}</title></rect>'
                )
                if width > 16:
                    parts.append(
                        f'<text x="{x(each.start) + 6}" y="{y + 17}" style="fill:#fff">{each.rank}</text>'
                    )
    parts.append(
        f'<text class="m" x="{_LEFT}" y="{bottom + 18}">0 s</text>'
        f'<text class="m" x="{_WIDTH - _RIGHT}" y="{bottom + 18}" text-anchor="end">{seconds:.1f} s</text>'
    )
    for row, world in enumerate(history.worlds):
        when = f"after {world.start - history.start:.1f} s"
        text = f"{world.generation}. {when}, {world.size} ranks: {world.reason}"
        parts.append(f'<text x="16" y="{bottom + 44 + 18 * row}" font-size="12">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _title(history: History) -> str:
    sizes = [world.size for world in history.worlds]
    return f"An elastic job: {len(sizes)} generations, {min(sizes)} to {max(sizes)} ranks"
