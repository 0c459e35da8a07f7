"""The functions of horovod.keras and horovod.tensorflow.keras, for the Keras of each."""

from __future__ import annotations

from typing import Any

from horovod._keras import flavours, saving, values, variables
from horovod._keras.optimizer import OPS, checked_groups, distribute
from horovod.common.basics import Average
from horovod.common.distributed_options import DistributedOptions, checked_layers
from horovod.common.process_sets import ProcessSet, global_process_set


class Api:
    """The functions; `compression=None` stands for Compression.none throughout."""

    def __init__(self, keras: Any) -> None:
        self._keras = keras
        self.Compression: Any = flavours.collectives_of(keras).Compression

    def DistributedOptimizer(
        self,
        optimizer: Any,
        name: str | None = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = None,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        num_groups: int = 0,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> Any:
        """The optimizer, which from now on works with the gradients of all ranks.

        It keeps its class name, configuration and state; it reduces where it applies: in
        model.fit(), and in apply_gradients() of a loop of your own. Gradients from
        hvd.DistributedGradientTape stay as they are.

        name: for the operations, as seen in timelines; default Distributed<class>.
        compression: what travels, for example hvd.Compression.fp16.
        sparse_as_dense: turn tf.IndexedSlices into tensors first.
        gradient_predivide_factor: with op=Average, divide by this before the sum and by size / this
        after it.
        op: hvd.Average or hvd.Sum.
        backward_passes_per_step: reduce and apply only on every k-th pass, after summing on each
        rank.
        average_aggregated_gradients: divide by backward_passes_per_step, too.
        groups: a number of groups, or lists of variables, whose gradients travel together.
        scale_local_gradients: divide the gradients of local variables by the number of ranks.
        """
        return self.PartialDistributedOptimizer(
            optimizer,
            name,
            device_dense,
            device_sparse,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            op,
            backward_passes_per_step,
            average_aggregated_gradients,
            checked_groups(self._keras, groups, num_groups),
            process_set,
            scale_local_gradients=scale_local_gradients,
        )

    def PartialDistributedOptimizer(
        self,
        optimizer: Any,
        name: str | None = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = None,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        local_layers: Any = None,
        scale_local_gradients: bool = True,
    ) -> Any:
        """DistributedOptimizer() that leaves the gradients of
        `local_layers`, one or several, on the rank."""
        options = DistributedOptions(
            name=name,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression or self.Compression.none,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=checked_groups(self._keras, groups, 0),
            process_set=process_set,
            local_layers=checked_layers(local_layers, self._keras.layers.Layer),
            scale_local_gradients=scale_local_gradients,
            ops=OPS,
        )
        return distribute(optimizer, options)

    def broadcast_global_variables(self, root_rank: int) -> None:
        """Overwrites the variables of legacy Keras's TF1 graph with the root's.

        Otherwise there are no such variables (RuntimeError): use
        callbacks.BroadcastGlobalVariablesCallback.
        """
        variables.broadcast_global_variables(self._keras, root_rank)

    def allreduce(
        self,
        value: Any,
        name: str | None = None,
        average: bool | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: int | None = None,
        compression: Any = None,
    ) -> Any:
        """The ranks' values (numbers, arrays or tensors)
        combined element by element; default: Average."""
        return values.allreduce(
            self._keras,
            value,
            name=name,
            average=average,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            op=op,
            compression=compression or self.Compression.none,
        )

    def allgather(self, value: Any, name: str | None = None) -> Any:
        """The ranks' values one after another along the first
        dimension, which may differ in length."""
        return values.allgather(self._keras, value, name)

    def broadcast(self, value: Any, root_rank: int, name: str | None = None) -> Any:
        """The value of `root_rank`."""
        return values.broadcast(self._keras, value, root_rank, name)

    def reducescatter(self, value: Any, name: str | None = None, op: int = Average) -> Any:
        """This rank's rows of the reduced value (Average or Sum); low ranks get larger shares."""
        return values.reducescatter(self._keras, value, name, op)

    def load_model(
        self,
        filepath: Any,
        custom_optimizers: Any = None,
        custom_objects: Any = None,
        compression: Any = None,
        legacy_opts: bool = False,
    ) -> Any:
        """A saved model; its optimizer has its state and is distributed, whether it was when saved
        or not.

        custom_optimizers: classes of optimizers that Keras does not know. custom_objects: as for
        Keras's own.
        legacy_opts: accepted and not needed; the file says which optimizer it has.
        """
        return saving.load_model(
            self._keras, filepath, custom_optimizers, custom_objects, compression or self.Compression.none
        )
