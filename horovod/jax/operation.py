"""What is to be done with the leaves of a call, apart from the leaves themselves."""

from __future__ import annotations

from typing import NamedTuple

from horovod import _core
from horovod.common.process_sets import ProcessSet, global_process_set

KINDS = {
    _core.ALLREDUCE: "allreduce",
    _core.ALLGATHER: "allgather",
    _core.BROADCAST: "broadcast",
    _core.ALLTOALL: "alltoall",
    _core.REDUCESCATTER: "reducescatter",
}


class Operation(NamedTuple):
    """One collective. Hashable, as traces keep it."""

    kind: int
    name: str | None = None
    op: int = _core.SUM
    root_rank: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    process_set: ProcessSet = global_process_set
    splits: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None  # of the results, where they are known to differ from rank to rank
    ends_step: int = 0  # not 0: the kind of step that ends with it, see steps.end_step()

    @property
    def word(self) -> str:
        """What users call it."""
        return f"hvd.{KINDS[self.kind]}()"

    def gradient(self, **changes: object) -> Operation:
        """The operation on the way back: matched by name, too, if this one is."""
        name = None if self.name is None else f"{self.name}.grad"
        return self._replace(name=name, ends_step=0, **changes)  # type: ignore[arg-type]  # fields of this class
