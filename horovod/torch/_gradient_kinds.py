"""Which gradients are sparse: what a rank has to know of a parameter that it has no gradient for.

Sparse gradients are gathered and dense ones summed, so that ranks would wait for each other if one
took an embedding that none of its batches has used yet for dense. Only autograd makes gradients
sparse, nothing about the parameter tells. So the ranks tell each other, at the end of a step, until
of each parameter one of them has had a gradient: in most trainings once.
"""

from __future__ import annotations

from typing import Protocol

import torch

from horovod import _core
from horovod.common.basics import Max
from horovod.common.process_sets import ProcessSet
from horovod.common.session import engine_error, for_collective
from horovod.errors import HorovodInternalError
from horovod.torch import ops
from horovod.torch._zero_gradient import keep

_NONE = -(1 << 32)  # less than any kind


class Entry(Protocol):
    """A parameter; `sparse_dim`: what others have seen."""

    name: str
    parameter: torch.Tensor
    sparse_dim: int | None

    def kind(self) -> int | None:
        """The sparse dimensions of this rank's gradient, 0 if it is dense, None if there was none yet."""


class GradientKinds:
    """Of one optimizer's parameters. Each rank calls agree() as often as the others.

    `may_differ`: whether sparse gradients match dense ones.
    """

    def __init__(self, process_set: ProcessSet, may_differ: bool) -> None:
        self._process_set = process_set
        self._may_differ = may_differ
        self._all: list[Entry] = []
        self._unknown: list[Entry] = []  # no rank has had a gradient
        self._joins = 0
        # Kept here, so that a Ctrl-C during the wait leaves it to the next call.
        self._asked: tuple[int, list[Entry]] | None = None

    def add(self, entry: Entry) -> None:
        self._all.append(entry)
        self._unknown.append(entry)

    def restart(self) -> None:
        """Among other ranks: some of them may have had no gradients yet."""
        self._unknown = list(self._all)
        self._asked = None

    def zeroed(self) -> None:
        """Gradients that were made because there was none are kept if they are not None now."""
        for entry in self._unknown:
            if entry.parameter.grad is not None:
                keep(entry.parameter.grad)

    def agree(self) -> None:
        """Gives entries without a gradient the kind that other ranks have seen.

        HorovodInternalError, on all ranks, if they have seen different kinds.
        """
        joins = for_collective().joins
        if joins != self._joins:  # a rank that had joined does not know what the others told each other
            self._joins = joins
            self.restart()
        if not self._unknown:
            return
        if self._asked is None:
            # Frozen ones get no gradient. By name: only that is the same on all ranks.
            entries = sorted((e for e in self._unknown if e.parameter.requires_grad), key=lambda e: e.name)
            if not entries:
                return
            kinds = [entry.kind() for entry in entries]
            known = [[_NONE, _NONE] if kind is None else [kind, -kind] for kind in kinds]
            most_and_least = torch.tensor(known, dtype=torch.int64, device="cpu")
            name = f"{entries[0].name}.kinds"
            handle = ops.allreduce_async_(most_and_least, name=name, op=Max, process_set=self._process_set)
            self._asked = handle, entries
        handle, entries = self._asked
        try:
            answers = ops.synchronize(handle).tolist()
        except HorovodInternalError:
            self._asked = None
            raise
        self._asked = None
        found = set()
        for entry, (most, negated_least) in zip(entries, answers, strict=True):
            if most < 0:
                continue
            if most != -negated_least and not self._may_differ:
                raise engine_error(
                    _core.FAILED_PRECONDITION,
                    f"the gradient of {entry.name} is sparse on some ranks and dense on others, or has other "
                    "sparse dimensions: use sparse_as_dense=True",
                )
            if entry.sparse_dim is None:
                entry.sparse_dim = most
            found.add(id(entry))
        self._unknown = [entry for entry in self._unknown if id(entry) not in found]
