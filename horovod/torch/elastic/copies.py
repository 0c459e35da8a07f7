"""Copies of state dicts in host memory."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor


def host_copy(value: Any, into: Any = None) -> Any:
    """A deep copy whose tensors are in host memory.

    `into`: an earlier copy, not needed any more. Its tensors are used again where they fit, as a new
    one for every commit would cost the time of asking the system for memory.
    """
    if isinstance(value, Tensor):
        return _tensor_copy(value, into)
    if type(value) in (dict, OrderedDict):
        old = into if isinstance(into, dict) else {}
        copies = ((key, host_copy(item, old.get(key))) for key, item in value.items())
        return type(value)(copies)
    if type(value) in (list, tuple):
        known = into if type(into) is type(value) and len(into) == len(value) else [None] * len(value)
        return type(value)([host_copy(item, each) for item, each in zip(value, known, strict=True)])
    return copy.deepcopy(value)


def _tensor_copy(value: Tensor, into: Any) -> Tensor:
    value = value.detach()
    if value.layout is not torch.strided or value.is_quantized:
        return value.cpu().clone()
    if not _fits(into, value):
        into = torch.empty_like(value, device="cpu")
    into.copy_(value)
    return into  # type: ignore[no-any-return]


def _fits(buffer: Any, value: Tensor) -> bool:
    return (
        isinstance(buffer, Tensor)
        and buffer.layout is torch.strided
        and buffer.shape == value.shape
        and buffer.dtype == value.dtype
        and not buffer.is_quantized
    )
