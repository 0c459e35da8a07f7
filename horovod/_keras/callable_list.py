"""A list that may also be called, as `optimizer.variables` was a method once."""

from __future__ import annotations

from typing import Any


class CallableList(list[Any]):
    """Calling it gives the list itself."""

    def __call__(self) -> CallableList:
        return self
