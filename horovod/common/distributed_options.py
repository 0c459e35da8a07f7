"""What users may ask of a distributed optimizer or tape:
one set of options with one set of errors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from horovod.common import basics
from horovod.common.basics import Adasum, Average, Sum
from horovod.common.compression import NoneCompressor
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list, warn_deprecated

Groups = int | Sequence[Sequence[Any]] | None

_NAMES = {
    getattr(basics, name): f"hvd.{name}" for name in ("Average", "Sum", "Adasum", "Min", "Max", "Product")
}


class Factors(TypedDict):
    """What an allreduce multiplies by before and after the sum."""

    prescale_factor: float
    postscale_factor: float


@dataclass(frozen=True)
class DistributedOptions:
    """The arguments of hvd.DistributedOptimizer() and the tapes. ValueError if they make no sense.

    name: of the operations, as seen in timelines.
    compression: what travels, for example hvd.Compression.fp16.
    op: how gradients are combined, one of `ops`.
    gradient_predivide_factor: f divides by f before the sum and by size/f afterwards; only with
    Average.
    sparse_as_dense: turn sparse gradients into dense ones first.
    backward_passes_per_step: gradients are summed over so many passes before they travel.
    average_aggregated_gradients: divide these sums by the number of passes.
    groups: a number of groups, or lists of parameters, whose gradients travel together.
    local_layers: Keras layers whose gradients stay on their rank.
    scale_local_gradients: divide such gradients by the number of ranks.
    device_dense, device_sparse: where TensorFlow is to place the operations.
    """

    name: str | None = None
    compression: Any = NoneCompressor
    op: int = Average
    gradient_predivide_factor: float = 1.0
    sparse_as_dense: bool = False
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    groups: Groups = None
    process_set: ProcessSet = global_process_set
    local_layers: Sequence[Any] = ()
    scale_local_gradients: bool = True
    device_dense: str = ""
    device_sparse: str = ""
    ops: Sequence[int] = (Average, Sum, Adasum)

    def __post_init__(self) -> None:
        if self.op not in self.ops:
            *most, last = (_NAMES[op] for op in self.ops)
            raise ValueError(f"op must be {', '.join(most)} or {last}, got {_NAMES.get(self.op, self.op)}")
        factor = self.gradient_predivide_factor
        if factor != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor works with op=hvd.Average only")
        if not factor > 0:
            raise ValueError(f"gradient_predivide_factor must be positive, got {factor}")
        if self.average_aggregated_gradients and self.op == Adasum:
            raise ValueError("average_aggregated_gradients does not go with op=hvd.Adasum")
        check_passes(self.backward_passes_per_step)

    def factors(self) -> Factors:
        """The arguments of an allreduce that follow from gradient_predivide_factor."""
        factor = self.gradient_predivide_factor
        return {"prescale_factor": 1.0 / factor, "postscale_factor": factor}


def check_passes(backward_passes_per_step: int) -> None:
    """ValueError unless there is at least one."""
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be at least 1, got {backward_passes_per_step}")


def _itself(parameter: Any) -> Any:
    return parameter


def checked_groups(
    groups: Any, num_groups: int, kind: type | None, inner: Callable[[Any], Any] = _itself
) -> Groups:
    """`groups`, or what the deprecated `num_groups` stands for.

    ValueError unless it is None, a positive number, or lists of different parameters of the type
    `kind` (None: any), to which `inner` leads.
    """
    if num_groups != 0:
        warn_deprecated("num_groups is deprecated: use groups=<number>")
        groups = num_groups if groups is None else groups
    if groups is None:
        return None
    if not isinstance(groups, list | tuple):
        return _positive(groups)
    seen: set[int] = set()
    for group in groups:
        if not isinstance(group, list | tuple):
            raise _wrong_groups(f"a list with a {type(group).__name__} in it")
        for parameter in map(inner, group):
            if kind is not None and not isinstance(parameter, kind):
                raise _wrong_groups(f"lists with a {type(parameter).__name__} in them")
            if id(parameter) in seen:
                raise ValueError("groups must not have a parameter twice")
            seen.add(id(parameter))
    return groups


def _positive(groups: Any) -> int:
    try:
        number = operator.index(groups)
    except TypeError:
        number = 0
    if number <= 0 or isinstance(groups, bool):
        raise _wrong_groups(repr(groups))
    return number


def _wrong_groups(given: str) -> ValueError:
    return ValueError(f"groups must be a positive number or lists of parameters, got {given}")


def partition(
    parameters: Sequence[Any], groups: int | Sequence[Sequence[Any]], inner: Callable[[Any], Any] = _itself
) -> list[Sequence[int]]:
    """Which places of `parameters` travel together. One that is in no group travels alone."""
    if isinstance(groups, int):
        count = len(parameters)
        return [part for part in split_list(range(count), max(1, min(groups, count))) if part]
    number_of = {id(inner(member)): number for number, group in enumerate(groups) for member in group}
    together: dict[Any, list[int]] = {}
    for place, parameter in enumerate(parameters):
        key = number_of.get(id(inner(parameter)), ("alone", place))
        together.setdefault(key, []).append(place)
    return list(together.values())


def checked_layers(given: Any, layer_class: type) -> list[Any]:
    """The argument local_layers as a list: one Keras layer or several, None for none.

    Else ValueError.
    """
    if given is None:
        return []
    single = isinstance(given, (layer_class, str, bytes)) or not isinstance(given, Iterable)
    layers = [given] if single else list(given)
    for layer in layers:
        if not isinstance(layer, layer_class):
            raise ValueError(f"local_layers must be a Keras layer or several, got {layer!r}")
    return layers
