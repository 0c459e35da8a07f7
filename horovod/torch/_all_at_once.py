"""Several operations that are submitted before any is waited for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from horovod.errors import HorovodInternalError
from horovod.torch.ops import synchronize


def synchronize_all(submitted: Iterable[int]) -> list[Any]:
    """Waits for the operations that the iteration submits, and returns their outputs.

    On an error the rest is waited for all the same: what is left behind would still write into its
    tensors, and its names would be taken.
    """
    handles: list[int] = []
    outputs: list[Any] = []
    failure: Exception | None = None
    try:
        for handle in submitted:
            handles.append(handle)
    except Exception as error:
        failure = error
    for handle in handles:
        try:
            outputs.append(synchronize(handle))
        except HorovodInternalError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return outputs
