"""Helpers on top of the collectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horovod.numpy.ops import broadcast_async_, synchronize

Array = NDArray[Any]


def broadcast_parameters(
    params: Mapping[str, Array] | Iterable[Array | tuple[str, Array]], root_rank: int
) -> None:
    """Overwrites arrays with the root's, in place: a dict, or
    an iterable of arrays or of (name, array)."""
    if isinstance(params, np.ndarray | str | bytes) or not isinstance(params, Mapping | Iterable):
        raise ValueError(
            f"params must be a dict or an iterable of arrays or (name, array), got {type(params).__name__}"
        )
    named: list[tuple[str | None, Array]] = []
    if isinstance(params, Mapping):
        named.extend(sorted(params.items()))
    else:
        for entry in params:
            named.append(entry if isinstance(entry, tuple) else (None, entry))
    handles = [broadcast_async_(array, root_rank, name) for name, array in named]
    for handle in handles:
        synchronize(handle)
