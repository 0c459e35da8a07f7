"""What the distributions of torch and JAX have in common: gradients travel in groups, in one call each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod._keras.distribution import local_variables
from horovod.common.distributed_options import DistributedOptions, partition


class GroupedDistribution:
    """The part of a distribution.Distribution that reduces. `hvd` is the framework's module."""

    hvd: Any

    def __init__(self, options: DistributedOptions, name: str) -> None:
        self.options = options
        self._name = options.name or f"Distributed{name}"
        self._local: dict[int, Any] = {}  # keeps them alive, so that an id stays theirs

    def add_local(self, variable: Any) -> None:
        """See Distribution."""
        self._local[id(variable)] = variable

    def is_reduced(self, gradient: Any) -> bool:
        """See Distribution."""
        return False

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """See Distribution."""
        for variable in local_variables(self.options):
            self.add_local(variable)
        results = list(gradients)
        process_set = self.options.process_set
        size = process_set.size() or 1
        if not process_set.included() or size == 1:
            return results
        pending = [i for i, g in enumerate(results) if g is not None and not self.is_reduced(g)]
        for i in pending:
            if id(variables[i]) in self._local and self.options.scale_local_gradients:
                results[i] = results[i] / size
        shared = [i for i in pending if id(variables[i]) not in self._local]
        for number, group in enumerate(self._groups(shared, variables)):
            reduced = self.hvd.grouped_allreduce(
                [results[i] for i in group],
                name=f"{self._name}_{number}",
                compression=self.options.compression,
                op=self.options.op,
                process_set=process_set,
                **self.options.factors(),
            )
            for i, value in zip(group, reduced, strict=True):
                results[i] = value
        for i in pending:
            self._mark(results[i])
        return results

    def _mark(self, gradient: Any) -> None:
        """Makes is_reduced() true, where gradients can carry a mark."""

    def _groups(self, places: list[int], variables: Sequence[Any]) -> list[Sequence[int]]:
        if self.options.groups is None:
            return [places] if places else []
        parts = partition([variables[i] for i in places], self.options.groups)
        return [[places[i] for i in part] for part in parts]
