"""What a check says."""

from __future__ import annotations

from typing import NamedTuple

OK = "ok"
WARNING = "warning"
ERROR = "error"


class Finding(NamedTuple):
    """A level and a sentence; that of a warning or an error has the remedy in it."""

    level: str
    sentence: str
