"""What the gradients are called, and which of them travel together.

Pure logic, no communication.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch


def unnamed(group: int, index: int) -> str:
    """The name of a parameter that has none: its place in the optimizer."""
    return f"allreduce.noname.{group}.{index}"


def name_parameters(
    param_groups: Sequence[dict[str, Any]], named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[torch.Tensor, str]:
    """A unique name for each parameter of the optimizer, in the optimizer's order.

    ValueError if `named_parameters` is not made of pairs, has a name twice or misses a parameter. A
    parameter that is shared under several names goes by its first.
    """
    parameters = [parameter for group in param_groups for parameter in group["params"]]
    if named_parameters is None:
        return {
            parameter: unnamed(number, index)
            for number, group in enumerate(param_groups)
            for index, parameter in enumerate(group["params"])
        }
    entries = list(named_parameters)
    for entry in entries:
        if not isinstance(entry, tuple) or len(entry) != 2:
            raise ValueError(
                "named_parameters must be pairs (name, parameter) such as model.named_parameters() gives, "
                f"got {type(entry).__name__}"
            )
    names: dict[torch.Tensor, str] = {}
    seen: set[str] = set()
    for name, parameter in entries:
        if name in seen:
            raise ValueError(
                f"named_parameters has the name {name!r} twice; with several models, put a prefix "
                "of its own before the names of each"
            )
        seen.add(name)
        names.setdefault(parameter, name)
    missing = sum(parameter not in names for parameter in parameters)
    if missing:
        raise ValueError(
            f"named_parameters lacks {missing} of the {len(parameters)} parameters of the optimizer; "
            "pass model.named_parameters() of all its models"
        )
    return {parameter: names[parameter] for parameter in parameters}


def split_evenly(parameters: Sequence[torch.Tensor], count: int) -> list[list[torch.Tensor]]:
    """`count` consecutive parts whose sizes differ by at
    most one; fewer if there are fewer parameters."""
    count = min(count, len(parameters))
    return [
        list(parameters[len(parameters) * part // count : len(parameters) * (part + 1) // count])
        for part in range(count)
    ]


def with_singles(
    parameters: Sequence[torch.Tensor], groups: Sequence[Sequence[torch.Tensor]]
) -> list[list[torch.Tensor]]:
    """The groups, without members that are not among
    `parameters`, and every other parameter alone."""
    known = set(parameters)
    chosen = [[member for member in group if member in known] for group in groups]
    grouped = {member for group in chosen for member in group}
    singles = [[parameter] for parameter in parameters if parameter not in grouped]
    return [group for group in chosen if group] + singles
