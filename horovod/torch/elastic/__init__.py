"""Elastic training with PyTorch: `@hvd.elastic.run` around a training function, and its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from horovod.common import elastic as _elastic
from horovod.common.elastic import ObjectState, State
from horovod.torch.elastic import sampler, state
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run", "sampler", "state"]

P = ParamSpec("P")
R = TypeVar("R")


def run(func: Callable[P, R]) -> Callable[P, R]:
    """Makes `func(state, ...)` go on when ranks come, go or fail::

        @hvd.elastic.run
        def train(state):
            for state.epoch in range(state.epoch, epochs):
                ...
                state.commit()


        train(hvd.elastic.TorchState(model, optimizer, epoch=0))

    When a rank fails, the others go back to the last commit, form a new world and call the function
    again; when hosts come or go, they do so at the next commit and lose nothing. All ranks start a
    call with the same state. What the function returns is the result.
    """
    return _elastic.run(func)
