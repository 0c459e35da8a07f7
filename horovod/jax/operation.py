"""What is to be done with the leaves of a call, apart from the leaves themselves."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from horovod import _core
from horovod.common.process_sets import ProcessSet, global_process_set

KINDS = {
    _core.ALLREDUCE: "allreduce",
    _core.ALLGATHER: "allgather",
    _core.BROADCAST: "broadcast",
    _core.ALLTOALL: "alltoall",
    _core.REDUCESCATTER: "reducescatter",
}


_NUMBERS = {
    "op": "op",
    "root_rank": "root_rank",
    "prescale": "prescale_factor",
    "postscale": "postscale_factor",
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

    def with_numbers(self) -> Operation:
        """With numbers of Python in place of arrays that hold one; TypeError if one has no value yet."""
        found: dict[str, object] = {}
        for field, called in _NUMBERS.items():
            value = getattr(self, field)
            if isinstance(value, jax.core.Tracer):
                raise TypeError(
                    f"{self.word} needs {called} with a value, got a traced one, as all arrays are that "
                    "jax.jit is given or makes: pass a number of Python, or multiply the array itself"
                )
            if isinstance(value, jax.Array | np.ndarray | np.generic):
                found[field] = value.item()
        return self._replace(**found) if found else self  # type: ignore[arg-type]  # fields of this class

    def gradient(self, **changes: object) -> Operation:
        """The operation on the way back: matched by name, too, if this one is."""
        name = None if self.name is None else f"{self.name}.grad"
        return self._replace(name=name, ends_step=0, **changes)  # type: ignore[arg-type]  # fields of this class
