"""What users ask of a distributed optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set


@dataclass(frozen=True)
class Options:
    """The arguments of hvd.DistributedOptimizer(). ValueError if they make no sense."""

    compression: Any
    name: str | None = None
    device_dense: str = ""
    device_sparse: str = ""
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: int = Average
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    groups: Any = None
    process_set: ProcessSet = field(default_factory=lambda: global_process_set)
    scale_local_gradients: bool = True
    local_layers: Sequence[Any] = ()

    def __post_init__(self) -> None:
        if self.op not in (Average, Sum):
            raise ValueError(f"a Keras optimizer takes op=hvd.Average or hvd.Sum, got {self.op}")
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor works with op=hvd.Average only")
        if self.backward_passes_per_step <= 0:
            raise ValueError(
                f"backward_passes_per_step must be at least 1, got {self.backward_passes_per_step}"
            )


def layers(given: Any, layer_class: Any) -> list[Any]:
    """The argument local_layers as a list: one Keras layer or several, None for none."""
    if given is None:
        return []
    listed = list(given) if isinstance(given, list | tuple | set | frozenset) else [given]
    for layer in listed:
        if not isinstance(layer, layer_class):
            raise ValueError(f"local_layers must be a Keras layer or a collection of them, got {layer!r}")
    return listed
