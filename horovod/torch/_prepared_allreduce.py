"""The short way to the engine for what a training step does most: the allreduce of a dense gradient
in place.

A handle from here is one like ops.allreduce_async_() gives, for about half of the work per call.
"""

from __future__ import annotations

import contextlib

import torch
from torch.autograd.graph import increment_version

from horovod import _core
from horovod.common.handles import InPlace, table
from horovod.common.process_sets import ProcessSet, id_of
from horovod.common.session import for_collective
from horovod.errors import HorovodInternalError
from horovod.torch.adapter import TorchAdapter


class PreparedAllreduce:
    """Allreduces of one parameter's gradients by name, with `op` and factors that stay the same."""

    __slots__ = ("_arguments", "_dtype", "_engine", "_name", "_number", "_prepared", "_process_set", "_shape")

    def __init__(
        self, name: str, op: int, process_set: ProcessSet, prescale_factor: float, postscale_factor: float
    ) -> None:
        self._name = f"allreduce.{name}".encode()
        self._arguments = (op, prescale_factor, postscale_factor)
        self._process_set = process_set
        self._number = id_of(process_set)
        self._engine: _core.Engine | None = None
        self._prepared: _core.Prepared
        self._shape: torch.Size
        self._dtype: torch.dtype

    @staticmethod
    def takes(gradient: torch.Tensor) -> bool:
        """Whether the engine can work on the memory of this tensor as it is."""
        return (
            gradient.is_cpu and gradient.is_contiguous() and not gradient.is_conj() and not gradient.is_neg()
        )

    def submit(self, gradient: torch.Tensor) -> int:
        """A handle, whose result is None."""
        engine = for_collective().engine
        # A restarted elastic job has another engine; users replace a parameter's data, and process
        # sets.
        if (
            engine is not self._engine
            or gradient.shape != self._shape
            or gradient.dtype is not self._dtype
            or self._process_set.process_set_id != self._number
        ):
            self._prepare(engine, gradient)
        pending = InPlace(engine, None, (gradient, self._prepared))
        handle = table.add(pending)
        try:
            address = gradient.data_ptr()
            pending.number = self._prepared.submit(address, address)
        except (ValueError, HorovodInternalError):  # refused, so the engine does not use the memory
            table.discard(handle)
            raise
        increment_version(gradient)
        return handle

    def release(self) -> None:
        """Lets go of the engine, which has ended."""
        self._engine = None
        with contextlib.suppress(AttributeError):  # nothing has been sent yet
            del self._prepared

    def _prepare(self, engine: _core.Engine, gradient: torch.Tensor) -> None:
        _, shape, dtype = TorchAdapter().describe(gradient)
        self._number = id_of(self._process_set)
        self._prepared = _core.Prepared(
            engine, _core.ALLREDUCE, self._name, self._number, shape, dtype, *self._arguments
        )
        self._engine, self._shape, self._dtype = engine, gradient.shape, gradient.dtype
