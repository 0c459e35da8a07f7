"""The gradients of an optimizer of Keras 3 on its torch backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import horovod.torch as hvd
from horovod._keras.distribution import Apply
from horovod._keras.grouped_distribution import GroupedDistribution
from horovod.common.distributed_options import DistributedOptions
from horovod.common.steps import end_step

_MARK = "_horovod_reduced"


class TorchDistribution(GroupedDistribution):
    """A distribution.Distribution for torch tensors."""

    def __init__(self, options: DistributedOptions, name: str) -> None:
        super().__init__(options, name)
        self._passed = 0
        self._sums: list[Any] = []

    def is_reduced(self, gradient: Any) -> bool:
        """See Distribution."""
        return getattr(gradient, _MARK, False) is True

    def _mark(self, gradient: Any) -> None:
        setattr(gradient, _MARK, True)

    def _allreduce(self, gradients: list[Any], name: str, ends_step: int) -> list[Any]:
        options = self.options
        reduced: list[Any] = hvd.grouped_allreduce(
            gradients,
            name=name,
            compression=options.compression,
            op=options.op,
            process_set=options.process_set,
            **options.factors(),
        )
        if ends_step:
            end_step(ends_step)
        return reduced

    def _end_step_alone(self, gradients: list[Any], kind: int) -> list[Any]:
        if kind:
            end_step(kind)
        return gradients

    def accumulate(
        self, gradients: Sequence[Any], variables: Sequence[Any], apply: Apply, skip: Callable[[], Any]
    ) -> None:
        """See Distribution."""
        if self._passed == 0:
            self._sums = [None] * len(gradients)
        for i, gradient in enumerate(gradients):
            if gradient is not None:
                # The first may come in any pass: what a batch does not use has none.
                total = self._sums[i]
                self._sums[i] = gradient.clone() if total is None else total.add_(gradient)
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
