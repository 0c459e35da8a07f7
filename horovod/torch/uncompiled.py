"""Functions that torch.compile() leaves alone: it can't look into the engine."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

F = TypeVar("F", bound=Callable[..., Any])


def uncompiled(function: F) -> F:
    """Within a compiled function a call of this one is a graph break."""
    disabled: Callable[..., Any] | None = None

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal disabled
        if disabled is None:
            # torch.compiler.disable() takes a second to import the compiler, which many programs
            # never use.
            if "torch._dynamo" not in sys.modules:
                return function(*args, **kwargs)
            disabled = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
        return disabled(*args, **kwargs)

    # The compiler counts how often it looks at a piece of code, and warns: so it is not the same
    # for all.
    wrapper.__code__ = wrapper.__code__.replace()  # type: ignore[attr-defined]
    return cast(F, wrapper)
