"""What the distributions of torch and JAX have in common: gradients travel in groups, in one call each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod._keras.distribution import local_variables
from horovod.common.distributed_options import DistributedOptions, partition
from horovod.common.process_sets import is_member
from horovod.common.steps import kind_named


class GroupedDistribution:
    """The part of a distribution.Distribution that reduces."""

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
        size = (process_set.size() or 1) if is_member(process_set) else 1
        if size == 1:
            return self._end_step_alone(results, self._kind(variables))
        pending = [i for i, g in enumerate(results) if g is not None and not self.is_reduced(g)]
        for i in pending:
            if id(variables[i]) in self._local and self.options.scale_local_gradients:
                results[i] = results[i] / size
        shared = [i for i in pending if id(variables[i]) not in self._local]
        groups = self._groups(shared, variables)
        for number, group in enumerate(groups):
            reduced = self._allreduce(
                [results[i] for i in group],
                f"{self._name}_{number}",
                self._kind(variables) if number == len(groups) - 1 else 0,
            )
            for i, value in zip(group, reduced, strict=True):
                results[i] = value
        for i in pending:
            self._mark(results[i])
        return results

    def _allreduce(self, gradients: list[Any], name: str, ends_step: int) -> list[Any]:
        """Those of all ranks. A step of the kind `ends_step` ends with them, if it is not 0."""
        raise NotImplementedError

    def _end_step_alone(self, gradients: list[Any], kind: int) -> list[Any]:
        """The gradients, where there are no others to add. Says that a step ends with them."""
        raise NotImplementedError

    def _kind(self, variables: Sequence[Any]) -> int:
        """The kind of step: which variables are trained."""
        return kind_named(f"{self._name} {getattr(variables[0], 'path', '')}") if variables else 0

    def _mark(self, gradient: Any) -> None:
        """Makes is_reduced() true, where gradients can carry a mark."""

    def _groups(self, places: list[int], variables: Sequence[Any]) -> list[Sequence[int]]:
        if self.options.groups is None:
            return [places] if places else []
        parts = partition([variables[i] for i in places], self.options.groups)
        return [[places[i] for i in part] for part in parts]
