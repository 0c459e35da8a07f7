"""The same start for all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from horovod._keras import variables
from horovod._keras.callbacks.base import HorovodCallback
from horovod._keras.classes import is_distributed
from horovod.common.session import state
from horovod.common.steps import end_step


class Broadcast(HorovodCallback):
    """At the end of the first batch the model's and the optimizer's variables become those of the
    root.

    Not earlier, as some are made in the first batch. Random initial values and a checkpoint that
    only the root has loaded thus reach all ranks.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        """root_rank: whose variables all ranks get.

        local_variables: one or several to leave as they are.
        """
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self._done_in: Any = None
        self._local: dict[int, Any] = {}  # keeps them alive, so that an id stays theirs
        for variable in _listed(local_variables):
            self.register_local_var(variable)

    @property
    def broadcast_done(self) -> bool:
        """Whether it was done among the ranks of now; in an elastic job new ones need it, too."""
        return state.session is not None and self._done_in is state.session

    @broadcast_done.setter
    def broadcast_done(self, done: bool) -> None:
        self._done_in = state.session if done else None

    def register_local_var(self, var: Any) -> None:
        """Leaves a variable as it is."""
        self._local[variables.identity_of(var)] = var

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts, once; and says that a step has ended, where no optimizer does."""
        if not is_distributed(getattr(self.model, "optimizer", None)):
            end_step(id(self))
        if self.broadcast_done:
            return
        variables.broadcast_variables(
            self.keras,
            [v for v in variables.trained_with(self.model) if variables.identity_of(v) not in self._local],
            self.root_rank,
        )
        self.broadcast_done = True


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    # A variable can be iterated over, too: so it is known by what else it has.
    listed = [given] if _is_variable(given) else list(given) if isinstance(given, Iterable) else [given]
    for variable in listed:
        if not _is_variable(variable):
            raise ValueError(f"local_variables must be a variable or a collection of them, got {variable!r}")
    return listed


def _is_variable(value: Any) -> bool:
    return hasattr(value, "assign") and hasattr(value, "shape")
