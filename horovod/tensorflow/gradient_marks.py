"""A mark on gradients that are those of all ranks already, so that a tape and an optimizer reduce
them once.

The mark belongs to the tensor object: what is computed from a marked gradient has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_MARK = "_horovod_reduced"


def mark_reduced(gradients: Iterable[Any]) -> list[Any]:
    """The gradients, marked; None stays None."""
    marked = list(gradients)
    for gradient in marked:
        if gradient is not None:
            setattr(gradient, _MARK, True)
    return marked


def is_reduced(gradient: Any) -> bool:
    """Whether a gradient has the mark."""
    return getattr(gradient, _MARK, False) is True
