"""When the gradients of a Trainer's optimizers are combined over the ranks.

The optimizers stay as they are, so that schedulers, checkpoints and callbacks see nothing unusual. Beside
each there is a distributed one, of which only the reduction is used: it starts during the backward pass, and
is waited for before anybody looks at the gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import Module

import horovod.torch as hvd


class _Beside:
    """The reduction of one optimizer's gradients."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, model: Module, passes: int, options: dict[str, Any]
    ) -> None:
        self.shape = _shape(optimizer, passes)
        self.combined = False  # since the last step
        self._distributed = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            backward_passes_per_step=passes,
            **options,
        )

    @property
    def in_flight(self) -> bool:
        reducer = self._distributed._horovod
        return reducer is not None and bool(reducer.in_flight)

    def combine(self) -> None:
        self._distributed.synchronize()
        self.combined = True


def _shape(optimizer: torch.optim.Optimizer, passes: int) -> tuple[int, ...]:
    return (passes, *(len(group["params"]) for group in optimizer.param_groups))


class Gradients:
    """Those of all optimizers of a model. `options` are those of hvd.DistributedOptimizer."""

    def __init__(self, model: Module, options: dict[str, Any]) -> None:
        self._model = model
        self._options = options
        self._beside: dict[torch.optim.Optimizer, _Beside] = {}

    def expect(self, optimizers: Iterable[torch.optim.Optimizer], passes: int) -> None:
        """Before a batch: optimizers may have got further parameters, or the number of passes has changed."""
        for optimizer in optimizers:
            known = self._beside.get(optimizer)
            if known is None or known.shape != _shape(optimizer, passes):
                self._beside[optimizer] = _Beside(optimizer, self._model, passes, self._options)

    def after_backward(self) -> None:
        """Waits for what has set out: it is complete, with the last of the passes."""
        for beside in self._beside.values():
            if beside.in_flight:
                beside.combine()

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Combines what no backward pass has sent: in an epoch's last window there may be fewer passes."""
        beside = self._beside[optimizer]
        if not beside.combined:
            beside.combine()
        beside.combined = False
