"""Values of flags: types for argparse, whose errors name the value and what is allowed."""

from __future__ import annotations

import argparse

_LARGEST_PORT = 65535


def positive(text: str) -> int:
    """An integer of at least 1."""
    return _integer(text, 1, None, "an integer >= 1")


def count(text: str) -> int:
    """An integer of at least 0."""
    return _integer(text, 0, None, "an integer >= 0")


def port(text: str) -> int:
    """A TCP port."""
    return _integer(text, 1, _LARGEST_PORT, f"a port between 1 and {_LARGEST_PORT}")


def seconds(text: str) -> float:
    """A number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not valid: it must be a number of seconds >= 0")
    return number


def _integer(text: str, smallest: int, largest: int | None, allowed: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = smallest - 1
    if number < smallest or (largest is not None and number > largest):
        raise argparse.ArgumentTypeError(f"{text} is not valid: it must be {allowed}")
    return number
