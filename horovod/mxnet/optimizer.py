"""Optimizer and gluon.Trainer that combine gradients over the ranks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from horovod.common.basics import Average
from horovod.common.distributed_options import DistributedOptions, partition
from horovod.common.handles import table
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.steps import end_step, kind_named
from horovod.mxnet.adapter import NDArray
from horovod.mxnet.compression import Compression
from horovod.mxnet.framework import mx
from horovod.mxnet.functions import only
from horovod.mxnet.ops import api


class _Averaging:
    """Averages named gradients in place, all at once."""

    def __init__(self, options: DistributedOptions, num_groups: int) -> None:
        if num_groups < 0:
            raise ValueError(f"num_groups must not be negative, got {num_groups}")
        self._options = options
        self._groups = num_groups

    def __call__(self, named: Sequence[tuple[str, NDArray]]) -> None:
        if not self._options.process_set.included():
            return  # trains on its own
        places = partition(named, self._groups or ())
        units = [[named[place] for place in unit] for unit in places]
        # Submitted from the last on, whose gradients the backward pass has ready first.
        for handle, writes in [self._send(unit) for unit in reversed(units)]:
            table.synchronize(handle)
            for gradient, outgoing, context in writes:
                gradient[:] = self._options.compression.decompress(outgoing, context)

    def _send(self, unit: Sequence[tuple[str, NDArray]]) -> tuple[int, list[tuple[NDArray, NDArray, Any]]]:
        """The handle, and for each gradient that is not reduced in place: what is, and its compressor's."""
        options = self._options
        name, compressed = unit[0][0], [options.compression.compress(gradient) for _, gradient in unit]
        outgoing = [each for each, _ in compressed]
        how = {"name": name, "op": Average, "process_set": options.process_set, **options.factors()}
        send: Any = api.grouped_allreduce_async_ if len(unit) > 1 else api.allreduce_async_
        handle = send(outgoing if len(unit) > 1 else outgoing[0], **how)
        pairs = zip(unit, compressed, strict=True)
        return handle, [(own, each, ctx) for (_, own), (each, ctx) in pairs if each is not own]


class DistributedOptimizer(mx.optimizer.Optimizer):  # type: ignore[misc]
    """An optimizer that averages each gradient over the ranks before it updates the weight.

    Everything else is that of `optimizer`. For mx.mod.Module; gluon programs use DistributedTrainer, which
    sends all gradients at once.
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        options = DistributedOptions(
            gradient_predivide_factor=gradient_predivide_factor, process_set=process_set
        )
        # All other attributes are the optimizer's.
        self.__dict__.update(_optimizer=optimizer, _average=_Averaging(options, num_groups))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_optimizer"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._optimizer, name, value)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a distributed optimizer can't be pickled: save the states only, or use hvd.DistributedTrainer"
        )

    def create_state(self, index: Any, weight: Any) -> Any:
        """That of the optimizer."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """That of the optimizer."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Averages the gradient, or several, in place; then updates the weight."""
        self._combine(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """update() for weights of 16 bits."""
        self._combine(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def _combine(self, index: Any, grad: Any) -> None:
        several = isinstance(index, list | tuple)
        pairs = zip(index, grad, strict=True) if several else [(index, grad)]
        named = [(str(number), gradient) for number, gradient in pairs]
        self._average(named)
        if named:  # one call for each weight: they take turns, so that the first one's are the steps
            end_step(kind_named(f"{id(self)} {named[0][0]}"))


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc]
    """A gluon.Trainer that averages the gradients over the ranks. `batch_size` of step() is that of one rank.

    `prefix` goes before the names of the gradients, which are the parameters' numbers: of several trainers
    each needs its own. `compression`: hvd.Compression.none or fp16. `num_groups`: how many groups the
    gradients travel in; 0: each on its own.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer uses the optimizer within the DistributedOptimizer", stacklevel=2
            )
            optimizer = optimizer._optimizer
        self._horovod_prefix = prefix or ""
        options = DistributedOptions(
            compression=compression,
            gradient_predivide_factor=gradient_predivide_factor,
            process_set=process_set,
        )
        self._horovod_average = _Averaging(options, num_groups)
        super().__init__(params, optimizer, optimizer_params, kvstore=None)

    def _allreduce_grads(self) -> None:
        self._horovod_average(
            [
                (f"{self._horovod_prefix}{number}", only(parameter, parameter.list_grad()))
                for number, parameter in enumerate(self._params)
                if parameter.grad_req != "null"
            ]
        )
        end_step(id(self))
