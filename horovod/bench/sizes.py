"""Sizes and times as people write them."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of "4", "64K", "1.5MiB", ...; units are powers of 1024. ValueError if it is not a size."""
    match = _SIZE.fullmatch(text.strip())
    size = float(match[1]) * _UNITS[match[2].upper()] if match else 0.0
    if size < 1:
        raise ValueError(f"{text!r} is not a size; write for example 4, 64K, 1M or 1.5G")
    return int(size)


def show_size(size: int) -> str:
    """The opposite of parse_size(), to one decimal."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= 0.999 * unit:  # an allgather of three ranks rounds to whole elements
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{size} B"


def show_time(seconds: float) -> str:
    """Three digits with a unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return _three_digits(seconds / unit) + f" {name}"
    return _three_digits(seconds / 1e-6) + " µs"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
