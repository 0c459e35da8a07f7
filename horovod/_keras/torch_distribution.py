"""The gradients of an optimizer of Keras 3 on its torch backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import horovod.torch as hvd
from horovod._keras.distribution import Apply, local_variables
from horovod._keras.options import Options
from horovod.common.util import split_list

_MARK = "_horovod_reduced"


class TorchDistribution:
    """A distribution.Distribution for torch tensors."""

    def __init__(self, options: Options, name: str) -> None:
        self.options = options
        self._name = options.name or f"Distributed{name}"
        self._local: dict[int, Any] = {}  # keeps them alive, so that an id stays theirs
        self._passed = 0
        self._sums: list[Any] = []

    def add_local(self, variable: Any) -> None:
        """See Distribution."""
        self._local[id(variable)] = variable

    def is_reduced(self, gradient: Any) -> bool:
        """See Distribution."""
        return getattr(gradient, _MARK, False) is True

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
        factor = self.options.gradient_predivide_factor
        for number, group in enumerate(self._groups(shared, variables)):
            reduced = hvd.grouped_allreduce(
                [results[i] for i in group],
                name=f"{self._name}_{number}",
                compression=self.options.compression,
                op=self.options.op,
                prescale_factor=1.0 / factor,
                postscale_factor=factor,
                process_set=process_set,
            )
            for i, value in zip(group, reduced, strict=True):
                results[i] = value
        for i in pending:
            setattr(results[i], _MARK, True)
        return results

    def accumulate(
        self, gradients: Sequence[Any], variables: Sequence[Any], apply: Apply, skip: Callable[[], Any]
    ) -> None:
        """See Distribution."""
        if self._passed == 0:
            self._sums = [None if gradient is None else gradient.clone() for gradient in gradients]
        else:
            for i, (total, gradient) in enumerate(zip(self._sums, gradients, strict=True)):
                if total is None:
                    self._sums[i] = None if gradient is None else gradient.clone()
                elif gradient is not None:
                    total.add_(gradient)
        self._passed += 1
        passes = self.options.backward_passes_per_step
        if self._passed < passes:
            skip()
            return
        self._passed = 0
        reduced = self.reduce(self._sums, variables)
        if self.options.average_aggregated_gradients:
            reduced = [None if value is None else value / passes for value in reduced]
        apply(reduced)

    def _groups(self, places: list[int], variables: Sequence[Any]) -> list[Sequence[int]]:
        groups = self.options.groups
        if groups is None:
            return [places] if places else []
        if isinstance(groups, int):
            return [group for group in split_list(places, min(groups, max(len(places), 1))) if group]
        number_of = {id(variable): number for number, group in enumerate(groups) for variable in group}
        together: dict[Any, list[int]] = {}
        for i in places:
            together.setdefault(number_of.get(id(variables[i]), ("alone", i)), []).append(i)
        return list(together.values())
