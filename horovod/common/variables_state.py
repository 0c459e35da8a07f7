"""An elastic state that consists of a framework's variables, beside Python objects."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from horovod.common.arrays import Array, collectives
from horovod.common.elastic import ObjectState, source_rank
from horovod.common.handles import table
from horovod.common.objects import broadcast_object
from horovod.common.process_sets import global_process_set
from horovod.common.session import state as _process


class _Like(NamedTuple):
    """How the source describes one of its variables."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class VariablesState(ObjectState):
    """A framework's class says which variables, and how they are read and written.

    What is received becomes the saved copy as well, so that nothing is in memory three times.
    """

    def __init__(
        self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object, get_rank, **kwargs)
        self._saved_arrays: list[tuple[Any, Array]] = []
        self._save_variables()

    def save(self) -> None:
        """Copies variables and attributes to host memory."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Writes back what was saved."""
        if self._saved_arrays:
            variables, arrays = zip(*self._saved_arrays, strict=True)
            self._assign(variables, arrays)
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the variables and attributes of rank `source_rank()`, and saves them.

        A collective. ValueError where the variables of a rank are not like those of the source.
        """
        variables = self._shared_variables()
        arrays = self._received(variables)
        self._sync_attributes()
        # Last, when nothing can fail any more: a state is never taken over in part.
        if self._rank() != source_rank():
            self._assign(variables, arrays)
        self.save()

    def _durable(self) -> bytes:
        arrays = [array for _, array in self._saved_arrays[: len(self._shared_variables())]]
        return pickle.dumps((super()._durable(), arrays))

    def _load_durable(self, content: bytes) -> None:
        objects, arrays = pickle.loads(content)  # the user's own file, see durable.py
        shared = [array.shape for _, array in self._saved_arrays[: len(self._shared_variables())]]
        if shared != [array.shape for array in arrays]:
            raise ValueError(
                "the variables of the state are not those of the commit on disk: start all ranks with the "
                "same program"
            )
        for number, array in enumerate(arrays):
            self._saved_arrays[number] = (self._saved_arrays[number][0], array)
        super()._load_durable(objects)

    def _shared_variables(self) -> list[Any]:
        """Those that are the same on all ranks."""
        raise NotImplementedError

    def _own_variables(self) -> list[Any]:
        """Those that are saved and restored, but belong to each rank alone."""
        return []

    def _read(self, variables: Sequence[Any]) -> list[Array]:
        """Copies of their values."""
        raise NotImplementedError

    def _assign(self, variables: Sequence[Any], arrays: Sequence[Array]) -> None:
        """Writes the values."""
        raise NotImplementedError

    def _save_variables(self) -> None:
        variables = [*self._shared_variables(), *self._own_variables()]
        self._saved_arrays = list(zip(variables, self._read(variables), strict=True))

    def _received(self, variables: list[Any]) -> list[Array]:
        arrays = self._read(variables)
        session = _process.session
        if session is None or session.place.size == 1:
            return arrays
        self._check_like_source(variables, arrays)
        handles = [
            collectives.broadcast(
                array,
                source_rank(),
                f"horovod.elastic.variable.{number}",
                global_process_set,
                in_place=True,
            )
            for number, array in enumerate(arrays)
        ]
        for handle in handles:
            table.synchronize(handle)
        return arrays

    def _check_like_source(self, variables: list[Any], arrays: list[Array]) -> None:
        own = [
            _Like(_name(variable), array.shape, array.dtype)
            for variable, array in zip(variables, arrays, strict=True)
        ]
        source = source_rank()
        theirs: list[_Like] = broadcast_object(own, source, "horovod.elastic.variables")
        if len(own) != len(theirs):
            surplus = (own if len(own) > len(theirs) else theirs)[min(len(own), len(theirs))]
            raise ValueError(
                f"rank {source} has {len(theirs)} variables in its state, rank {self._rank()} has "
                f"{len(own)}; {surplus.name} is the first that the other lacks: build model and optimizer "
                "before the state is made"
            )
        for number, (mine, its) in enumerate(zip(own, theirs, strict=True)):
            if (mine.shape, mine.dtype) != (its.shape, its.dtype):
                raise ValueError(
                    f"variable {number} of the state is {its.name}, {its.dtype}{list(its.shape)}, on rank "
                    f"{source}, but {mine.name}, {mine.dtype}{list(mine.shape)}, on rank {self._rank()}: "
                    "start all ranks with the same program"
                )


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or getattr(variable, "name", "a variable"))
